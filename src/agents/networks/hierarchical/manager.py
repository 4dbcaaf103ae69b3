"""The manager's network: a value for every visible item."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.encoders.item_views import principal_views
from agents.networks.encoders.resnet import ResNet
from agents.networks.readouts.values import flattened, start_small
from packing_env.core.observation import ITEM_FEATURES
from packing_env.envs import PackingEnv
from packing_env.values import Count

_BLOCK_ITEMS = 1024
"""Number of items that are encoded at once."""


@dataclass(frozen=True)
class ManagerSize:
    """Sizes of the manager's network.

    Attributes:
        features: Length of the embeddings of the container and of an item.
        encoder_width: Channels of the encoders' first stage.
        encoder_stages: Stages of each encoder.
        encoder_blocks: Blocks per stage.
        hidden: Width of the head.
        view_size: Largest number of pixels of an item's view along either axis.
        joint: Whether one encoder reads an item's views together with the container's heightmap.
    """

    features: Count = 32
    encoder_width: Count = 8
    encoder_stages: Count = 3
    encoder_blocks: Count = 1
    hidden: Count = 64
    view_size: Count = 16
    joint: bool = False


class ManagerNetwork(TensorDictModuleBase):
    """A value for every visible item.

    All items share an encoder of their six principal views
    (:func:`agents.networks.encoders.item_views.principal_views`); the container's heightmap has a
    separate encoder. The head of three layers reads, per item: the container, the item, the mean of
    the visible items, and the item's features.

    Without gradients, the embeddings of the whole catalogue are computed once, and then looked up
    until the encoder's weights change (:meth:`refresh`). With gradients, the network encodes the
    visible items of the batch, or the whole catalogue if that is smaller.

    ``joint`` follows Huang et al., RA-L 2023: the heightmap, reduced to the views' pixels by
    maxima, is a seventh channel next to every item's views. A single encoder encodes every visible
    item in every state.

    Reads ``observation`` (``heights``, ``item_id``, ``item_features``); writes
    ``("manager", "action_value") [*batch, L]`` float32.

    Args:
        env: Determines the shapes and provides the items.
        size: Sizes of the layers.
        autocast: Whether the encoders run in bfloat16.
    """

    views: Tensor
    embeddings: Tensor

    def __init__(self, env: PackingEnv, size: ManagerSize, *, autocast: bool) -> None:
        super().__init__()
        self.in_keys = [("observation", name) for name in ("heights", "item_id", "item_features")]
        self.out_keys = [("manager", "action_value")]
        self.height, self.num_visible = env.params.height, env.params.num_visible
        self.autocast = autocast
        encoder = partial(
            ResNet,
            features=size.features,
            width=size.encoder_width,
            stages=size.encoder_stages,
            blocks=size.encoder_blocks,
        )
        self.container = None if size.joint else encoder(1)
        self.items = encoder(7 if size.joint else 6)
        embeddings = 2 if size.joint else 3
        self.head = nn.Sequential(
            nn.Linear(embeddings * size.features + len(ITEM_FEATURES), size.hidden),
            nn.ReLU(),
            nn.Linear(size.hidden, size.hidden),
            nn.ReLU(),
            nn.Linear(size.hidden, 1),
        )
        last = self.head[-1]
        assert isinstance(last, nn.Linear)
        start_small(last.weight, last.bias)
        views = principal_views(env.catalogue.tensors(), env.params, size.view_size)
        self.register_buffer("views", views, persistent=False)
        self.register_buffer(
            "embeddings", views.new_zeros(len(views), size.features), persistent=False
        )
        self._encoded: int | None = None

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the values."""
        batch, (heights, item_id, features) = flattened(tensordict, self.in_keys)
        visible = slice(self.num_visible)
        value = self.action_value(heights / self.height, item_id[:, visible], features[:, visible])
        return tensordict.set(self.out_keys[0], value.unflatten(0, batch))

    def action_value(
        self,
        heightmap: Float[Tensor, "B X Y"],
        item_id: Int[Tensor, "B L"],
        features: Float[Tensor, "B L F"],
    ) -> Float[Tensor, "B L"]:
        """Return the values of the visible items; values of empty slots are undefined."""
        there, chosen = (item_id >= 0)[..., None], item_id.clamp(min=0)
        if self.container is None:
            items, shared = self._together(heightmap, chosen), []
        else:
            items, shared = self.embed(chosen), [self._encode(self.container, heightmap[:, None])]
        items = torch.where(there, items, 0.0)
        shared.append(items.sum(1) / there.sum(1).clamp(min=1))
        state = torch.cat(shared, -1)[:, None].expand(-1, item_id.shape[1], -1)
        return self.head(functional.relu(torch.cat((state, items, features), -1))).squeeze(-1)

    def _together(
        self, heightmap: Float[Tensor, "B X Y"], item_id: Int[Tensor, "B L"]
    ) -> Float[Tensor, "B L E"]:
        ground = functional.adaptive_max_pool2d(heightmap[:, None], self.views.shape[2:])
        ground = ground[:, None].expand(-1, item_id.shape[1], -1, -1, -1)
        images = torch.cat((self.views[item_id], ground), 2)
        return self._encode(self.items, images.flatten(0, 1)).unflatten(0, item_id.shape)

    def embed(self, item_id: Int[Tensor, "B L"]) -> Float[Tensor, "B L E"]:
        """Return the items' embeddings: computed with gradients, looked up without."""
        learns = torch.is_grad_enabled() and self.items.out.weight.requires_grad
        if not learns:
            self.refresh()
            return self.embeddings[item_id]
        if len(self.views) <= item_id.numel():
            return self._encode(self.items, self.views)[item_id]
        chosen = self.views[item_id.flatten()]
        return self._encode(self.items, chosen).unflatten(0, item_id.shape)

    def refresh(self) -> None:
        """Encode the catalogue if the encoder has changed since the last call.

        It compares the version counters of the weights, which the host knows. Fused optimizers do
        not increment these counters; code that steps such an optimizer must call
        ``torch.autograd.graph.increment_version``, as ``GatedAdam`` does. Under ``torch.compile``
        there are no counters: call this method between steps.
        """
        if self.container is None or torch.compiler.is_compiling():
            return
        version = sum(weight._version for weight in self.items.parameters())
        if version == self._encoded:
            return
        with torch.no_grad():
            split = self.views.split(_BLOCK_ITEMS)
            blocks = [self._encode(self.items, views) for views in split]
            self.embeddings.copy_(torch.cat(blocks))
        self._encoded = version

    def _encode(self, encoder: ResNet, images: Float[Tensor, "N C P Q"]) -> Float[Tensor, "N E"]:
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.autocast):
            return encoder(images).float()
