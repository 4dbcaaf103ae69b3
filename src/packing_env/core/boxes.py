"""Cuboids as integer boxes (placeholder of the lead: owner B-boxes replaces it)."""
