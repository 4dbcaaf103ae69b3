"""Metrics on the device (meter), and where they go: files, other programs, a progress line."""
