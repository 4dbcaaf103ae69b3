"""Composes, checks and builds configurations."""
