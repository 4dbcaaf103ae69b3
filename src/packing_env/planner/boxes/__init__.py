"""Orders of boxes alone, packed exactly: the search, sets of containers, and reasons."""
