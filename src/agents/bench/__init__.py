"""``packing bench``: benchmarks of speed and cost, one module each, run by :mod:`.command`.

``measure`` holds clocks and counters, ``workloads`` the loops that are measured, ``baselines``
other people's implementations, ``reports`` the table, the JSON file and the pictures.
"""
