"""Drop heights of all placements."""
