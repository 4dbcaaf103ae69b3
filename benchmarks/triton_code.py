"""Machine code of the Triton kernels, compiled without a GPU by the tools bundled with Triton."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from packing_env.kernels.choice import triton as choice
from packing_env.kernels.compiled import scene_triton as scene
from packing_env.kernels.compiled import triton as base
from packing_env.kernels.planes import triton as planes
from packing_env.kernels.support import hull_triton

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
TYPES = {
    **dict.fromkeys(
        (
            "heightmap",
            "phases",
            "value",
            "draw",
            "epsilon",
            "highest",
            "lowest",
            "bottom",
            "lows",
            "depths",
            "cells",
            "z",
            "peak",
        ),
        "*fp32",
    ),
    **dict.fromkeys(("which", "bound", "com"), "*i64"),
    **dict.fromkeys(("size", "count", "corners"), "*i32"),
    "stable": "*u8",
    **dict.fromkeys(("uniform", "place"), "*fp64"),
    **{"mask": "*i1", "chosen": "*i64"},
    **dict.fromkeys(("contact_tol", "lid"), "fp32"),
}
"""Types of the kernels' arguments; the others are int32."""

SCENE: Any = scene.Scene._make(TYPES[name] for name in scene.Scene._fields)
"""Types of a scene, which is one argument."""

_PLANES = dict.fromkeys(("rest", "sums", "sides", "peak", "images"), "*fp32")

LATTICES = ((1, 32, 20), (3, 40, 25), (4, 200, 40))
"""Lattice step, cells along a side, cells along a window's side; the last is the reference one."""


class Variant(NamedTuple):
    """A kernel: its constants, types (if not `TYPES`), name, and compiler options."""

    kernel: Any
    constants: dict[str, Any]
    types: Mapping[str, Any] | None = None
    label: str = ""
    options: Mapping[str, Any] = MappingProxyType({})

    @property
    def name(self) -> str:
        """The kernel, and its constants that are not sizes."""
        if self.label:
            return f"{self.kernel.__name__} {self.label}"
        shown = {k: v for k, v in self.constants.items() if k in ("COUNT", "CENTRES", "WIDE")}
        said = "".join(f" {key.lower()}" for key, value in shown.items() if value)
        if self.kernel is base.gaps_kernel and "peak" not in self.constants:
            said += " lid"
        return f"{self.kernel.__name__}{said} stride {self.stride}"

    @property
    def stride(self) -> int | None:
        """The lattice step that is compiled in."""
        lattice = self.constants.get("LATTICE")
        return lattice.stride if lattice else self.constants.get("STRIDE")


@dataclass(frozen=True)
class Code:
    """Machine code of a variant: registers per thread, bytes of local memory, instructions."""

    registers: int
    local_bytes: int
    shared_bytes: int
    ptx: str
    instructions: list[tuple[int, str]]


def variants(lattices: Sequence[tuple[int, int, int]] = LATTICES) -> Iterator[Variant]:
    """Yield every kernel with every choice of its constants, for some lattices."""
    entries = {"ENTRIES": choice.MOST_ENTRIES}
    yield Variant(choice.choose_kernel, entries, label="at random")
    for per_row in (False, True):
        constants = {**entries, "PER_ROW": per_row}
        yield Variant(choice.explore_kernel, constants, label=f"rate per row {per_row}")
    for stride, cells, _ in lattices:
        lattice = scene.lattice_of(stride, cells, cells)
        common, sizes = scene.block_constants(lattice), base.constants_of(lattice)
        yield Variant(scene.ground_kernel, {**common, "POINTS": scene.GROUND_POINTS})
        yield Variant(scene.blocks_kernel, common)
        drawn = {"STRIDE": stride, "POINTS": planes.POINTS}
        yield Variant(planes.planes_kernel, drawn, _PLANES)
        for counts in (False, True):
            yield Variant(base.gaps_kernel, {**sizes, "COUNT": counts, "peak": None})
        yield Variant(base.gaps_kernel, {**sizes, "COUNT": False})
        sizes |= {"POINTS": hull_triton.POINTS}
        for centres in (False, True):
            for wide in (False, True) if stride == LATTICES[-1][0] else (False,):
                yield Variant(
                    hull_triton.com_hull_kernel, {**sizes, "CENTRES": centres, "WIDE": wide}
                )


def compiled(variant: Variant, architecture: int, *, listing: bool = True) -> Code:
    """Compile a variant for a GPU architecture, as a launch would.

    Without ``listing`` the code has no list of instructions; listing takes about as long as
    compiling.
    """
    names = variant.kernel.arg_names
    given: dict[str, Any] = {**(variant.types or TYPES), "scene": SCENE}
    types = {name: given.get(name, "i32") for name in names}
    types |= dict.fromkeys(variant.constants, "constexpr")
    aligned = {key: [["tt.divisibility", 16]] for key in _pointers(list(types.values()))}
    source = ASTSource(variant.kernel, types, constexprs=variant.constants, attrs=aligned)
    target = GPUTarget("cuda", architecture, 32)
    options = {**scene.OPTIONS, **variant.options}
    kernel = triton.compile(source, target=target, options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage = _run("cuobjdump", "--dump-resource-usage", file.name)
        text = _run("cuobjdump", "-sass", file.name) if listing else ""
    used = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL|SHARED):(\d+)", usage)}
    lines = re.findall(r"^\s+/\*([0-9a-f]{4,5})\*/\s+(.*?);", text, re.M)
    instructions = [(int(address, 16), text) for address, text in lines]
    local = used["STACK"] + used["LOCAL"]
    return Code(used["REG"], local, used["SHARED"], kernel.asm["ptx"], instructions)


def _pointers(types: Sequence[Any], path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield the paths of the pointers among the types of arguments, some of which are tuples."""
    for index, each in enumerate(types):
        if isinstance(each, tuple):
            yield from _pointers(each, (*path, index))
        elif each.startswith("*"):
            yield (*path, index)


def _run(tool: str, *arguments: str) -> str:
    """Return what one of Triton's tools prints."""
    command = [str(TOOLS / tool), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
