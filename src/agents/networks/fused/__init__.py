"""Fused Triton kernels for decisions by score maps, on CUDA and without gradients.

The eager expressions in `agents.networks.score_maps` and `encoders.maps` are the specification.
They run on all other devices, for gradients, and under `torch.compile`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.fused import layout
from packing_env.kernels.backends import BACKENDS, resolve
from packing_env.kernels.operators import declare

MOST_CHANNELS = 128
"""Largest width of a layer, because a program holds all channels of its cells."""
_LOGGER = logging.getLogger("agents.networks")


def _declare(schema: str, fake: Callable[..., Any]) -> Any:
    """Declare the operator of a function of the Triton backend."""
    target = f"{__name__}.triton:{schema.partition('(')[0].removeprefix('triton_')}"
    return declare(schema, **dict.fromkeys(BACKENDS["triton"].runs_on or (), target), fake=fake)


_STACK_IMAGES = _declare(
    "triton_stack_images(Tensor images, Tensor ground, Tensor grid, int fold, bool short) "
    "-> Tensor[]",
    fake=layout.stacks,
)
_JOIN_STEM = _declare(
    "triton_join_stem(Tensor own, Tensor shared, Tensor bias, Tensor scalars, Tensor weight, "
    "Tensor scalar_bias) -> Tensor",
    fake=layout.channels_last,
)
_ADD_RESIDUAL = _declare(
    "triton_add_residual(Tensor images, Tensor bias, Tensor residual) -> Tensor",
    fake=layout.channels_last,
)
_ADD_TOKEN = _declare(
    "triton_add_token(Tensor images, Tensor weight, Tensor bias) -> Tensor",
    fake=layout.channels_last,
)
_PLACEMENT_VALUES = _declare(
    "triton_placement_values(Tensor hidden, Tensor images, Tensor ground, Tensor grid, "
    "Tensor scalars, Tensor legal, Tensor[] layers, Tensor? container, int fold) -> Tensor",
    fake=lambda hidden, images, *given: images.new_empty(
        len(images), images.shape[1] * images.shape[3] * images.shape[4]
    ),
)
_SUMMARIZE_MAPS = _declare(
    "triton_summarize_maps(Tensor rest, Tensor scalars, Tensor container, Tensor[] layers) "
    "-> Tensor",
    fake=lambda rest, scalars, container, layers: container.new_empty(
        *rest.shape[:2], container.shape[1]
    ),
)


class MapInputs(NamedTuple):
    """Inputs of :class:`~agents.networks.score_maps.ScoreMaps`, of P maps per row.

    Attributes:
        ground: Heights at the lattice's points.
        images: Images of the placements; the first holds the rest heights.
        scalars: Features of item and orientation.
        grid: Coordinates of the lattice's points.
    """

    ground: Float[Tensor, "B 1 Xs Ys"]
    images: Float[Tensor, "B P C Xs Ys"]
    scalars: Float[Tensor, "B P F"]
    grid: Float[Tensor, "2 Xs Ys"]


def serves(device: torch.device, modules: Sequence[nn.Module], *, obstacle: str = "") -> bool:
    """Return whether the kernels support the layers of these modules on a device.

    The kernels need CUDA, no gradients, and torch's own layers up to the largest width. If they are
    not used, a reason such as ``obstacle`` is logged once.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    if resolve(None, device.type) != "triton":
        return False
    if obstacle:
        return _refuse(obstacle)
    for layer in (layer for module in modules for layer in module.modules()):
        if next(layer.children(), None) is not None or not list(layer.parameters()):
            continue
        if type(layer) not in (nn.Conv2d, nn.Linear):
            return _refuse(f"a layer is a {type(layer).__name__}")
        if len(cast("Tensor", layer.weight)) > MOST_CHANNELS:
            return _refuse(f"a layer has more than {MOST_CHANNELS} channels")
    return True


@functools.cache
def _refuse(reason: str) -> bool:
    _LOGGER.info("decisions use torch's own kernels, not fused ones: %s", reason)
    return False


def encode_cells(inputs: MapInputs, network: Any) -> Float[Tensor, "BP D Xf Yf"]:
    """Return the features of the coarse cells of all maps, channels last.

    ``network`` is a :class:`~agents.networks.score_maps.ScoreMaps`; the weights of its convolutions
    have the dtype in which they compute.
    """
    own, shared = _STACK_IMAGES(
        inputs.images, inputs.ground, inputs.grid, network.fold, network.autocast
    )
    hidden = _JOIN_STEM(
        _convolved(own, network.own_stem),
        _convolved(shared, network.shared_stem),
        network.own_stem.bias,
        inputs.scalars,
        network.scalar_stem.weight,
        network.scalar_stem.bias,
    )
    for number, block in enumerate(network.blocks):
        if network.token is not None and number == len(network.blocks) // 2:
            hidden = _ADD_TOKEN(hidden, network.token.weight, network.token.bias)
        hidden = _ADD_RESIDUAL(_convolved(hidden, block), block.bias, hidden)
    return hidden


def _convolved(images: Tensor, layer: nn.Conv2d) -> Tensor:
    return functional.conv2d(images, layer.weight, None, layer.stride, layer.padding)


def placement_values(
    hidden: Float[Tensor, "BP D Xf Yf"],
    inputs: MapInputs,
    legal: Bool[Tensor, "B P XsYs"],
    layers: Sequence[nn.Module],
    container: Float[Tensor, "B V"] | None,
    fold: int,
) -> Float[Tensor, "B A"]:
    """Return the values of all placements, float32: scores or, with ``container``, dueling values.

    Args:
        hidden: Features of the coarse cells.
        inputs: Inputs of the network.
        legal: True where a placement is legal.
        layers: First the layer from features to scores; then the layer to the hidden features of
            the cells' weights; then the layer from these to the weights; with ``container``, also
            the two layers of the value.
        container: The value's hidden features of the container.
        fold: Points of the lattice per coarse cell and axis.
    """
    values: Tensor = _PLACEMENT_VALUES(
        hidden,
        inputs.images,
        inputs.ground,
        inputs.grid,
        inputs.scalars,
        legal,
        _parameters(layers),
        container,
        fold,
    )
    return values


def summarize_maps(
    rest: Float[Tensor, "B P XsYs"],
    scalars: Float[Tensor, "B P F"],
    container: Float[Tensor, "B D"],
    layers: Sequence[nn.Module],
) -> Float[Tensor, "B P D"]:
    """Return the features of :class:`~agents.networks.encoders.maps.MapSummary`.

    Args:
        rest: Rest heights over H, 1 where illegal.
        scalars: Features of item and orientation.
        container: Hidden features of the container.
        layers: The layer from features and fit to hidden features, and the layer to the output.
    """
    summary: Tensor = _SUMMARIZE_MAPS(rest, scalars, container, _parameters(layers))
    return summary


def _parameters(layers: Sequence[nn.Module]) -> list[Tensor]:
    """Return weights and biases alternately; a layer without a bias gives only its weights."""
    parameters = (getattr(layer, name) for layer in layers for name in ("weight", "bias"))
    return [parameter.detach() for parameter in parameters if parameter is not None]
