"""Foundations of compiled kernels: the compiler, byte and float vectors, stability rules."""
