"""The rules of packing, as pure functions over tensors with a leading batch axis."""

# Candidate generators register themselves when they are imported.
from packing_env.core import proposals

__all__ = ["proposals"]
