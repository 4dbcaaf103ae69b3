"""The rules of packing, as pure functions over tensors with a leading batch axis."""

# Candidate generators make themselves known when they are imported.
from packing_env.core import proposals

__all__ = ["proposals"]
