"""A U-Net over the action lattice, modulated by a vector per image."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

DEPTH = 3
"""Number of times that the image is halved; there are 2 * (DEPTH + 1 + DEPTH) = 14 convolutions of
3 x 3.
"""


class _Level(nn.Module):
    """Two 3 x 3 convolutions; a condition scales and shifts the channels of the first."""

    def __init__(self, inputs: int, outputs: int, condition: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.modulation = nn.Linear(condition, 2 * outputs)

    def forward(
        self, images: Float[Tensor, "N I H W"], condition: Float[Tensor, "N F"]
    ) -> Float[Tensor, "N O H W"]:
        scale, shift = self.modulation(condition)[..., None, None].chunk(2, 1)
        hidden = functional.relu(torch.addcmul(shift, self.first(images), 1 + scale))
        return functional.relu(self.second(hidden))


class UNet(nn.Module):
    """U-Net (Ronneberger et al., MICCAI 2015) with fourteen 3 x 3 convolutions.

    It has two convolutions per level. Three levels go down; each halves the image and doubles the
    channels. One level is at the bottom. Three levels go up; each also reads the output of the
    level of the same size on the way down. Images may have any size; convolutions are padded, so
    the output has the size of the image. A condition per image modulates every level (Perez et al.,
    AAAI 2018).

    Args:
        channels: Channels of the images.
        outputs: Channels of the output, made by a 1 x 1 convolution.
        width: Channels of the first level.
        condition: Length of the condition.
    """

    def __init__(self, channels: int, outputs: int, *, width: int = 32, condition: int) -> None:
        super().__init__()
        widths = [width << level for level in range(DEPTH + 1)]
        entries = [channels, *widths[:-1]]
        self.down = nn.ModuleList(
            _Level(inputs, outs, condition) for inputs, outs in zip(entries, widths, strict=True)
        )
        self.up = nn.ModuleList(
            _Level(below + beside, beside, condition)
            for below, beside in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.out = nn.Conv2d(width, outputs, 1)

    def forward(
        self, images: Float[Tensor, "N C H W"], condition: Float[Tensor, "N F"]
    ) -> Float[Tensor, "N O H W"]:
        """Return the outputs, of the images' size."""
        hidden, passed = self.down[0](images, condition), []
        for level in self.down[1:]:
            passed.append(hidden)
            hidden = level(functional.max_pool2d(hidden, 2, ceil_mode=True), condition)
        for level in self.up:
            beside = passed.pop()
            wide = functional.interpolate(hidden, size=beside.shape[2:], mode="nearest")
            hidden = level(torch.cat((wide, beside), 1), condition)
        return self.out(hidden)
