"""CUDA tensors without values, on a CPU build of torch: the operations that a GPU would get.

Fake tensors know devices, shapes and types alone. Operations on two devices fail as they would on a
GPU, and so does a read of a value. torch looks for a guard that chooses the device of an operation,
which only its CUDA builds have; :func:`load_guard` compiles one that does nothing.
"""

import contextlib
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from packing_env import memory
from packing_env.engine import Task
from packing_env.envs import PackingEnv

_GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, NoOpDeviceGuardImpl<DeviceType::CUDA>)
}
"""
_WITHOUT_MEMORY = ("aten::empty", "aten::new_empty", "aten::lift_fresh", "aten::detach")
"""Beginnings of the names of operations that launch nothing, beside those that return views."""

needs_compiler = pytest.mark.skipif(
    not shutil.which("c++"), reason="the guard of fake CUDA tensors needs a C++ compiler, c++"
)


def load_guard(folder: Path) -> None:
    """Compile and load a device guard for CUDA that does nothing, where torch has none."""
    if torch.version.cuda is not None:
        return
    source, library = folder / "guard.cpp", folder / "guard.so"
    source.write_text(_GUARD)
    root = Path(torch.__file__).parent
    include, links = [f"-I{root / 'include'}"], [f"-L{root / 'lib'}", "-lc10"]
    options = ["-std=c++20", "-shared", "-fPIC", "-O0"]
    command = ["c++", *options, *include, str(source), "-o", str(library), *links]
    subprocess.run(command, check=True)
    torch.ops.load_library(str(library))


def do_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the code that needs the values of a catalogue, or the memory of a machine."""
    monkeypatch.setattr(Task, "fingerprint", lambda task: 0)
    monkeypatch.setattr(torch, "allclose", lambda *given, **options: True)  # bounds of specs
    monkeypatch.setattr(memory, "free_memory", lambda device: None)


@contextlib.contextmanager
def fake_cuda() -> Iterator[None]:
    """Make new tensors fake within the block, which may read tensors made before it."""
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        yield


class Launches(TorchDispatchMode):
    """Counter of operations on CUDA tensors.

    Attributes:
        count: Operations that make or fill a tensor on CUDA; views are free.
        names: The same by operation.
        copies: Operations with tensors on two devices, scalars left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.names: Counter[str] = Counter()
        self.copies: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name
        read = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        made = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        if len({x.device.type for x in (*read, *made) if x.dim()}) > 1:
            self.copies[name] += 1
        inputs = {_memory(x) for x in read}
        fresh = [x for x in made if x.device.type == "cuda" and _memory(x) not in inputs]
        fills = func._schema.is_mutable and any(x.device.type == "cuda" for x in read)
        if (fresh or fills) and not name.startswith(_WITHOUT_MEMORY):
            self.count += 1
            self.names[name] += 1
        return out


def _memory(tensor: Tensor) -> int:
    """Return what tells the memory of a tensor from that of others."""
    return tensor.untyped_storage()._cdata


def on_cuda(env: PackingEnv) -> PackingEnv:
    """Return the environment on fake CUDA."""
    return env.to(torch.device("cuda:0"))
