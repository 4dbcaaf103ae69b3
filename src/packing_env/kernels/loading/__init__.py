"""Container loading with blocks of equal or matching boxes, compiled for the CPU.

A *block* is an arrangement of boxes that fills at least a given share of a cuboid, see
`arrays_numba.Blocks`. Lengths are whole numbers, int64; volumes are float64.

A *load* is a partly filled container: its maximal empty cuboids ``spaces [S, 6]``, of which the
first ``num_spaces`` count; the placed blocks ``placed [P, 7]``, lower corner, upper corner and
block, of which the first ``num_placed`` count; the boxes left, ``left [T]``; and the ``volume``
placed. `arrays_numba.Beam` holds several in arrays with one more axis.

Kernels that may run long read ``halt [1]``, int8, often: another thread sets it to
``HURRY`` or ``STOP``.
"""
