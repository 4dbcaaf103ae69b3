"""Networks of the ``hierarchical`` mode: a manager chooses an item, a worker places it."""
