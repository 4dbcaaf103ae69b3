"""A whole environment step in compiled passes."""
