"""Metrics on the device (meter), and their outputs: files, other programs, a progress line."""
