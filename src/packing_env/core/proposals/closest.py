"""The candidate generator for voxels: low placements that touch much."""

from __future__ import annotations

import torch

from packing_env.core.candidates import Proposals, Scene, need_maps
from packing_env.core.lists import NEVER, smallest


def closest(scene: Scene) -> Proposals:
    """Propose the K legal placements of lowest z, then of largest contact; ties by index."""
    maps, params = need_maps(scene, "closest"), scene.params
    assert maps.contact is not None, "checked when the environment is built"
    # One key per placement: its layer, then its contact, then its index.
    legal, contact = maps.legal.flatten(1), maps.contact.flatten(1).long()
    index = torch.arange(legal.shape[1], device=legal.device)
    most = 6 * scene.catalogue["voxels"][0, 0].numel()
    first = ((index % params.layers) * (most + 1) + most) * len(index) + index
    key = first - contact * len(index)
    best = smallest(torch.where(legal, key, NEVER), params.num_candidates)
    return Proposals(torch.where(best < NEVER, best % len(index), -1), torch.zeros_like(best[:, 0]))
