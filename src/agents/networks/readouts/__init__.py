"""Readouts: layers from a network's last features to values or to distributions of returns."""
