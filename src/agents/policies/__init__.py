"""Policies and what they draw with."""
