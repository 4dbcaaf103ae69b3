"""Nests as bits: free places of parts (`bits_numba`), and overlaps of parts (`overlaps_numba`)."""
