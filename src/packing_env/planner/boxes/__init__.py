"""Orders that contain only boxes, packed exactly: the search, sets of containers, and reasons."""
