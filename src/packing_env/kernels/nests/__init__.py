"""Nests as sets of bits.

Free places are in `bits_numba`, overlaps in `overlaps_numba`, ways out in `obstacles_numba`.
"""
