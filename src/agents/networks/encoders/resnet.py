"""A residual encoder from images to vectors; a vector depends on its image alone."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

_GROUP = 8
"""Number of channels that are normalised together."""


class Convolution(nn.Conv2d):
    """A convolution without bias; its output has the image's size divided by the stride.

    Along a side of one pixel, a stride would have no effect and is set to 1: otherwise the bfloat16
    gradient of oneDNN in torch 2.13 reads uninitialised memory.
    """

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, size, stride, padding=size // 2, bias=False)

    def forward(self, images: Float[Tensor, "N I H W"]) -> Float[Tensor, "N O Ho Wo"]:
        """Return images of the input's size divided by the stride."""
        stride = [1 if side == 1 else self.stride[0] for side in images.shape[-2:]]
        return functional.conv2d(images, self.weight, None, stride, self.padding)


def norm(channels: int) -> nn.GroupNorm:
    """Build a group normalisation (Wu and He, ECCV 2018)."""
    return nn.GroupNorm(max(1, channels // _GROUP), channels)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with a residual connection (He et al., CVPR 2016, fig. 5)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = Convolution(inputs, outputs, 3, stride)
        self.first_norm = norm(outputs)
        self.second = Convolution(outputs, outputs, 3)
        self.second_norm = norm(outputs)
        same = inputs == outputs and stride == 1
        self.carry = (
            nn.Identity()
            if same
            else nn.Sequential(Convolution(inputs, outputs, 1, stride), norm(outputs))
        )

    def forward(self, images: Float[Tensor, "N I H W"]) -> Float[Tensor, "N O Ho Wo"]:
        """Return images of the input's size divided by the stride."""
        hidden = functional.relu(self.first_norm(self.first(images)))
        return functional.relu(self.second_norm(self.second(hidden)) + self.carry(images))


class ResNet(nn.Module):
    """A residual network (He et al., CVPR 2016); by default the network of 18 layers.

    A 7 x 7 convolution and a pooling halve the image twice; stages of ``blocks`` basic blocks
    follow. Every stage except the first halves the size and doubles the channels. The mean over the
    image is mapped to the embedding. Channels are normalised in groups, not over batches, so an
    embedding depends on its image alone.

    Args:
        channels: Channels of the images.
        features: Length of the embedding.
        width: Channels of the first stage.
        stages: Number of stages.
        blocks: Basic blocks per stage.
    """

    def __init__(
        self, channels: int, features: int, *, width: int = 64, stages: int = 4, blocks: int = 2
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(Convolution(channels, width, 7, 2), norm(width), nn.ReLU())
        layers, inputs = [], width
        for stage in range(stages):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(BasicBlock(inputs, width << stage, stride))
                inputs = width << stage
        self.blocks = nn.Sequential(*layers)
        self.out = nn.Linear(inputs, features)

    def forward(self, images: Float[Tensor, "N C H W"]) -> Float[Tensor, "N F"]:
        """Return the images' embeddings."""
        hidden = functional.max_pool2d(self.stem(images), 3, 2, padding=1)
        return self.out(self.blocks(hidden).mean((2, 3)))
