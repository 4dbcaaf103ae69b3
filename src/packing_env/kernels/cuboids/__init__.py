"""Parts of the step on cuboids of whole cells: all placements of an item, and the observations."""
