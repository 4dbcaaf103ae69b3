"""Export of a policy as a program that runs without this package: for torch, or as ONNX."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tensordict import NestedKey, TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves, tree_map
from torchrl.envs.utils import ExplorationType, set_exploration_type

from packing_env import extras, kernels
from packing_env.envs import PackingEnv
from packing_env.envs.checks import check_env
from packing_env.types import ParameterError


def export_policy(policy: TensorDictModuleBase, env: PackingEnv) -> ExportedProgram:
    """Export the policy's greedy decision for every row of an environment by ``torch.export``.

    The program takes a mapping of tensors, named like the entries that the policy reads
    (``observation/heightmap``, ``action_mask``, ...), and returns a mapping of actions. The number
    of rows is fixed: export with ``num_envs=1`` for one container at a time. A program saved by
    ``torch.export.save`` needs only torch to run::

        decide = torch.export.load("policy.pt2").module()
        action = decide({"observation/heightmap": ..., "action_mask": ...})["action"]

    Args:
        policy: Policy of an agent; the program holds copies of its current weights.
        env: An environment of the policy's task.

    Raises:
        ParameterError: The policy reads the environment itself, as some heuristics do.
    """
    check_env(env)
    if not policy.in_keys:
        raise ParameterError(
            f"{type(policy).__name__} reads the state of its environment, not its observations, "
            "so it cannot be exported"
        )
    fake = env.fake_tensordict().exclude("next")
    inputs = {name_of(key): torch.zeros_like(fake.get(key)) for key in policy.in_keys}
    decision = _Decision(copy.deepcopy(policy).eval(), env.batch_size, list(env.action_keys))
    with (
        torch.no_grad(),
        set_exploration_type(ExplorationType.DETERMINISTIC),
        _torch_kernels(env.device),
    ):
        decision(inputs)  # fills caches now, because tensors of the export hold no values
        program = torch.export.export(decision, (inputs,), strict=False)
        if any("autocast" in str(node.target) for node in program.graph.nodes):
            program = program.run_decompositions({})  # torch cannot load autocast nodes
        return program


def check_onnx() -> None:
    """Raise MissingPackageError unless the packages of the extra ``onnx`` are installed."""
    for package in extras.EXTRAS["onnx"].modules:
        extras.check(package, "ONNX files")


def export_onnx(program: ExportedProgram, path: str | Path) -> None:
    """Write a program of :func:`export_policy` as an ONNX file, for ONNX Runtime.

    Inputs and outputs keep their names (``observation/heightmap``, ``action_mask``, ``action``).
    The export takes seconds to minutes.

    Args:
        program: The program.
        path: The file.

    Raises:
        MissingPackageError: The extra ``onnx`` is not installed.
    """
    check_onnx()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns that torchvision is missing
    (inputs,), _ = program.example_inputs
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch's exporter warns about its own code
        wide = torch.export.export(_WideTypes(program), (inputs,), strict=False)
        outputs = list(program.module()(inputs))
        onnx = torch.onnx.export(
            wide, dynamo=True, verbose=False, input_names=list(inputs), output_names=outputs
        )
    assert onnx is not None
    onnx.save(path)


_WIDER = {
    torch.int8: torch.int32,
    torch.int16: torch.int32,
    torch.uint8: torch.int32,
    torch.bfloat16: torch.float32,
}
"""Types for which ONNX Runtime lacks many CPU operations, and the types that replace them."""


class _WideTypes(nn.Module):
    """A program without the types of :data:`_WIDER`, and without concatenations of mixed types.

    ONNX does not promote types. Results that were bfloat16 are still rounded to bfloat16.
    """

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self.inner = program.module()

    def forward(self, inputs: Mapping[str, Tensor]) -> Any:
        return _Widening(self.inner).run(*tree_leaves(inputs))


class _Widening(torch.fx.Interpreter):
    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        before = getattr(n.meta.get("val"), "dtype", None)
        if before is torch.bfloat16 and isinstance(result, Tensor):
            return result.to(torch.bfloat16).float()
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        aten = torch.ops.aten
        if target is aten._assert_tensor_metadata.default:
            return None  # it asserts the types before widening
        args, kwargs = tree_map(_wide, (args, kwargs))
        if target in (aten.cat.default, aten.stack.default):
            common = torch.cat([tensor.flatten()[:0] for tensor in args[0]]).dtype
            args = ([tensor.to(common) for tensor in args[0]], *args[1:])
        if target in _CONVOLUTIONS and args[0].dtype is torch.float64:
            return _convolve(*args)  # ONNX Runtime convolves only float32
        return super().call_function(target, args, kwargs)


_CONVOLUTIONS = (torch.ops.aten.conv2d.default, torch.ops.aten.convolution.default)


def _convolve(
    images: Tensor, weight: Tensor, _: None = None, stride: Sequence[int] = (1, 1), *rest: Any
) -> Tensor:
    """Return a convolution without bias, padding and dilation, as a product of matrices."""
    x, y = weight.shape[2:]
    groups = rest[-1] if len(rest) > 2 else 1
    windows = images.unfold(2, x, stride[0]).unfold(3, y, stride[1]).unflatten(1, (groups, -1))
    kernels = weight.unflatten(0, (groups, -1))
    return torch.einsum("ngcxyuv,gocuv->ngoxy", windows, kernels).flatten(1, 2)


def _wide(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(_WIDER.get(value.dtype, value.dtype))
    return _WIDER.get(value, value) if isinstance(value, torch.dtype) else value


def name_of(key: NestedKey) -> str:
    """Return the name of an entry in the mappings of exported programs."""
    return key if isinstance(key, str) else "/".join(key)


class _Decision(nn.Module):
    def __init__(
        self, policy: TensorDictModuleBase, batch_size: torch.Size, actions: Sequence[NestedKey]
    ) -> None:
        super().__init__()
        self.policy, self.batch_size, self.actions = policy, batch_size, actions

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        entries = {key: inputs[name_of(key)] for key in self.policy.in_keys}
        written = self.policy(TensorDict(entries, self.batch_size))
        return {name_of(key): written.get(key) for key in self.actions}


@contextmanager
def _torch_kernels(device: torch.device) -> Iterator[None]:
    """Run kernels as torch operations inside the context; other backends cannot be exported."""
    before = kernels.backend_for(device.type)
    kernels.set_backend("eager")
    try:
        yield
    finally:
        kernels.set_backend(None)
        if kernels.backend_for(device.type) != before:
            kernels.set_backend(before)
