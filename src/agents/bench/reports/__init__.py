"""Results of a benchmark: the table on the console, the JSON file and the pictures."""
