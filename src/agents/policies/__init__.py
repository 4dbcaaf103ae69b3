"""Policies: from observations to actions, with exploration, masks and export."""
