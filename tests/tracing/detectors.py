"""Three ways to catch a value that is read back from the device, none of which needs a GPU.

Each runs a loop ``tensordict -> tensordict`` and raises :class:`HostReadError` at the first read.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase
from tests.counting import host_reads
from torch._dynamo.exc import TorchDynamoException
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

Loop = Callable[[TensorDictBase], TensorDictBase]
_CHUNK = 100


class HostReadError(AssertionError):
    """A value was read back to Python, or a tensor's size depends on data."""


def run_on_fake_tensors(loop: Loop, root: TensorDictBase, num_steps: int = 3) -> None:
    """Run on tensors without values, so that any read raises."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        root = root.apply(mode.from_tensor)
        try:
            for _ in range(num_steps):
                root = loop(root)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise HostReadError(f"on fake tensors: {error}") from error


def run_profiled(loop: Loop, root: TensorDictBase, num_steps: int) -> TensorDictBase:
    """Run and count host reads, reads inside operations included."""

    def step() -> None:
        nonlocal root
        root = loop(root)

    for start in range(0, num_steps, _CHUNK):
        counts = host_reads(step, min(_CHUNK, num_steps - start))
        if counts:
            raise HostReadError(f"within {start + _CHUNK} steps: {dict(counts)}")
    return root


def run_as_one_graph(
    loop: Loop, root: TensorDictBase, num_steps: int = 20, warmup: int = 2
) -> TensorDictBase:
    """Compile the loop whole after ``warmup`` steps and run on; a second graph raises."""
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(loop, fullgraph=True, backend=backend)
    for _ in range(warmup):
        root = loop(root)
    try:
        with warnings.catch_warnings():
            # torch 2.13 warns of its own deprecated calls while tracing
            warnings.simplefilter("ignore", DeprecationWarning)
            for _ in range(num_steps):
                root = compiled(root)
    except TorchDynamoException as error:
        raise HostReadError(f"not one graph: {str(error).strip().splitlines()[0]}") from error
    if len(graphs) != 1:
        raise HostReadError(f"{len(graphs)} graphs in {num_steps} steps: it was traced again")
    reads = [node for node in graphs[0].graph.nodes if _depends_on_data(node)]
    if reads:
        raise HostReadError(f"the graph holds {reads[0].format_node()}")
    return root


def _depends_on_data(node: torch.fx.Node) -> bool:
    """Whether a value or a size in the graph is known only when it runs.

    With fullgraph=True torch traces ``.item()`` and ``x[mask]`` into the graph instead of refusing
    them; what they give is a symbol without a value.
    """
    value = node.meta.get("example_value")
    return bool(value is not None and free_unbacked_symbols(value))
