"""Container loading with blocks of equal or matching boxes, compiled for the CPU.

A *block* is an arrangement of boxes that fills at least a given share of a cuboid, see
`arrays_numba.Blocks`. Lengths are whole numbers, int64; volumes are float64.

A *load* is a partly filled container. Its arrays are ``spaces [S, 7]``, the maximal empty cuboids
(the first ``num_spaces`` rows are valid); ``placed [P, 7]``, the lower corner, upper corner and
index of each block (the first ``num_placed`` rows are valid); ``left [T]``, the boxes that are
left; and ``volume``, the placed volume. `arrays_numba.Beam` holds several loads in arrays with one
more axis.

Long kernels read ``halt [1]`` (int8) often; they return at once if another thread sets it to 1.
"""
