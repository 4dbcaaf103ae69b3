"""Generators that supply their own cuboids: drawn, cut from the container, or read from files."""
