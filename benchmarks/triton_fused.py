"""Machine code of the fused kernels of decisions, without a GPU: `triton_kernels.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triton_code import Variant

from agents.networks.fused import triton as fused
from agents.policies import sampling_triton as sampling
from agents.policies.sampling import MASKED

_FEATURES = 11
_WIDTHS = {"V": 64, "WIDE_V": 64, "F": _FEATURES, "WIDE_F": 16}
_INPUTS = ("ground", "coordinates", "scalars", "uniform", "rest", "values", "logits",
           "log_prob")  # fmt: skip
_LAYERS = ("weight", "bias", "scalar_bias", "map_weight", "map_bias", "hidden_weight",
           "hidden_bias", "fit_weight", "out_weight", "out_bias", "container")  # fmt: skip
_WITHOUT_VALUE = dict.fromkeys(("fit_weight", "out_weight", "out_bias", "container"))


def _types(short: str, layers: str) -> dict[str, str]:
    """Return the types of arguments, of which images have the type ``short``."""
    types = dict.fromkeys(("own", "shared", "joined", "images", "residual", "sums"), short)
    types |= dict.fromkeys(("hidden", "summary"), short) | dict.fromkeys(_INPUTS, "*fp32")
    types |= dict.fromkeys(_LAYERS, layers)
    return types | {"legal": "*i1", "mask": "*i1", "chosen": "*i64", "uniform": "*fp64"}


def variants() -> Iterator[Variant]:
    """Yield the kernels of DQN and PPO: cells of one point, and of 4 x 4 points; two precisions."""
    for channels, fold, kind in ((32, 1, "bf16"), (16, 4, "bf16"), (32, 4, "fp32")):
        types = _types(f"*{kind}", f"*{kind}")
        full = types | {"images": "*fp32"}
        tail = full if channels == 16 else full | dict.fromkeys(_LAYERS, "*fp32")
        wide = {"C": channels, "WIDE_C": channels}
        label = f"{channels} channels, fold {fold}, {kind}"
        scalars = {key: _WIDTHS[key] for key in ("F", "WIDE_F")}
        tiled = {**wide, "TILE": fused.TILE}
        read = {"ENTRIES": fused.ENTRIES}
        values: dict[str, Any] = {**tiled, **_WIDTHS, "OWN": 3, "FOLD": fold}
        values |= _WITHOUT_VALUE if channels == 16 else {}
        images = {"OWN": 3, "SHARED": 3, "FOLD": fold, **read}
        for kernel, constants, given in (
            (fused.stack_kernel, images, full),
            (fused.stem_kernel, {**tiled, **scalars}, types | dict.fromkeys(_LAYERS, f"*{kind}")),
            (fused.residual_kernel, {"C": channels, **read}, types),
            (fused.token_kernel, tiled, types),
            (fused.values_kernel, values, tail),
            (fused.summary_kernel, {**_WIDTHS, **read}, types),
        ):
            yield Variant(kernel, constants, given, label, fused.WARPS)
    entries = {"ENTRIES": sampling.MOST_ENTRIES, "MASKED": MASKED}
    yield Variant(
        sampling.draw_kernel, entries, _types("*fp32", "*fp32"), "of a row", sampling.WARPS
    )
