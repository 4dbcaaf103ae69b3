"""Instruments: time, memory, GPU load, and counts of operations, host reads and allocations."""
