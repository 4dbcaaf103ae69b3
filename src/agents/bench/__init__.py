"""``packing bench``: how fast it is, and what it costs, measured by one command.

``conf/bench/<name>.yaml`` names a class of this package, which says what is measured; the command
does the rest: repeats, the table, and a JSON file with hardware, versions, revision and the whole
configuration. Nothing here judges a number.
"""
