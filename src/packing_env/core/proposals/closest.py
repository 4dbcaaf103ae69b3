"""The candidate generator for voxels: low placements that touch much, in every orientation."""

from __future__ import annotations

import torch

from packing_env.core.candidates import Proposals, Scene, need_maps
from packing_env.core.lists import NEVER, smallest


def closest(scene: Scene) -> Proposals:
    """Propose the best placements of each item in each orientation; the best of all come first.

    A placement is better if its layer is lower, then if its contact is larger, then if its index is
    smaller. Each orientation of each item gets an equal share of the capacity K, rounded up.
    """
    maps, params = need_maps(scene, "closest"), scene.params
    assert maps.contact is not None, "checked when the environment is built"
    # 1. One key per placement: its layer, then its contact, then its index.
    legal, contact = maps.legal.flatten(3), maps.contact.flatten(3).long()
    planes, places = legal.shape[1] * legal.shape[2], legal.shape[3]
    index = torch.arange(planes * places, device=legal.device).view(legal.shape[1:])
    most = 6 * scene.catalogue["voxels"][0, 0].numel()
    first = ((index % params.layers) * (most + 1) + most) * index.numel() + index
    key = torch.where(legal, first - contact * index.numel(), NEVER)
    # 2. Take the best placements of each orientation, then the best K of them.
    each = -(-params.num_candidates // planes)
    best = smallest(smallest(key.flatten(0, 2), each).view(len(legal), -1), params.num_candidates)
    proposed = torch.where(best < NEVER, best % index.numel(), -1)
    return Proposals(proposed, torch.zeros_like(proposed[:, 0]))
