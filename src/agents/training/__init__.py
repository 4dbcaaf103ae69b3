"""Training loops and what they keep."""
