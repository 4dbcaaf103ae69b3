"""Orders and containers as users write them: files, lists, lengths, units and constraints."""
