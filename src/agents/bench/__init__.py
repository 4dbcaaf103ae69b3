"""``packing bench``: speed of steps, training and kernels, and the comparison of two results.

:mod:`.measure` is shared by all of them, and by the scripts in ``benchmarks/``.
"""
