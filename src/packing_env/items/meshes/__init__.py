"""Meshes: files, repair, volume."""
