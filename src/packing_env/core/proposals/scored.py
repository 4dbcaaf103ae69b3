"""Candidate generators that propose the K legal placements of lowest score."""

from __future__ import annotations

import torch

from packing_env import kernels
from packing_env.core import scores
from packing_env.core.candidates import Proposals, Scene, need_maps
from packing_env.core.scores import Score


def best_by(score: Score, name: str, scene: Scene) -> Proposals:
    """Propose the K legal placements of lowest score; ties as in :mod:`packing_env.core.scores`."""
    # Scores are float64 and in pitches.
    params = scene.params
    maps = need_maps(scene, name)
    heights = kernels.divide(scene.state["heightmap"].double(), params.pitch)
    z = kernels.divide(maps.z.double(), params.pitch)
    placements = scores.lattice_placements(heights, z, scene.item_id, scene.catalogue, params)
    of_all = score(placements).expand_as(maps.legal)
    index = scores.best_of_lattice(of_all, maps.legal, params.num_candidates)
    return Proposals(index, torch.zeros_like(index[:, 0]))


def deepest_bottom_left(scene: Scene) -> Proposals:
    """Propose by lowest :func:`packing_env.core.scores.deepest_bottom_left`."""
    return best_by(scores.deepest_bottom_left, "deepest_bottom_left", scene)


def heightmap_minimization(scene: Scene) -> Proposals:
    """Propose by lowest :func:`packing_env.core.scores.heightmap_minimization`."""
    return best_by(scores.heightmap_minimization, "heightmap_minimization", scene)
