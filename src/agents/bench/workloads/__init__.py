"""Loops that benchmarks measure: environment steps, training, maps of several visible items."""
