"""Encoders: from observations of the container, the items and the candidates to features."""
