"""The rules of packing, as pure functions over tensors with a leading batch axis."""
