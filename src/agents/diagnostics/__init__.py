"""Diagnosis of a run that produced NaN or Inf: ``packing inspect RUN``."""
