"""``packing bench``: measure the speed of steps, training and kernels, and compare two results.

All benchmarks and the scripts in ``benchmarks/`` share :mod:`.measure`.
"""
