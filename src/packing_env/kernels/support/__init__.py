"""Supporting cells and hulls of all placements."""
