"""Loading of containers with boxes that are all known: the problem, its rules and the search."""
