"""Orders and containers as users write them: files, lists, lengths, units and constraints.

`parts` reads a whole order, `orders` one of its files, and `workbooks` XLSX with number formats.
"""
