"""The state of the process' random generators, as tensors and numbers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def state_dict() -> dict[str, Any]:
    """Of torch on the CPU and on every CUDA device, of NumPy's global generator and of Python's.

    Environments have streams of their own, in their state.
    """
    kind, numbers, index = random.getstate()
    _, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": {
            "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
            "place": int(place),
            "has_gauss": int(has_gauss),
            "gauss": float(gauss),
        },
        "python": {"kind": kind, "numbers": torch.tensor(numbers), "gauss": index},
    }


def load_state_dict(state: Mapping[str, Any]) -> None:
    """Inverse of :func:`state_dict`; devices that are not here keep their own."""
    torch.set_rng_state(state["torch"].cpu())
    if torch.cuda.is_available():
        for device, saved in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(saved.cpu(), device)
    numpy, python = state["numpy"], state["python"]
    keys = numpy["keys"].cpu().numpy().astype(np.uint32)
    np.random.set_state(  # noqa: NPY002
        ("MT19937", keys, numpy["place"], numpy["has_gauss"], numpy["gauss"])
    )
    random.setstate((python["kind"], tuple(python["numbers"].tolist()), python["gauss"]))
