"""The agents, one algorithm per file."""
