"""What compiled kernels share: the compiler, vectors of bytes and of floats."""
