"""Training loops, collectors, checkpoints and evaluation of agents."""
