"""Networks of the ``hierarchical`` mode: a manager picks an item, a worker places it."""
