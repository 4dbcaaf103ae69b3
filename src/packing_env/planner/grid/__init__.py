"""Orders of parts of any shape, packed on a grid of cells: poses, the search, and reasons."""
