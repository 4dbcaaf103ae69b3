"""The manager's network: a value for every visible item."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.item_views import principal_views
from agents.networks.readout import begin_small
from agents.networks.resnet import ResNet
from packing_env.core.observation import ITEM_FEATURES
from packing_env.envs import PackingEnv

_PIECE = 1024
"""Items are encoded so many at a time."""


class ManagerNetwork(TensorDictModuleBase):
    """A value for every visible item.

    The container's heightmap is encoded in every state. An item is the embedding of its six
    principal views (:func:`agents.networks.item_views.principal_views`) by an encoder that all
    items share. The head of three layers sees, per item: the container, the item, the mean of the
    items on offer, and the item's features.

    Views never change, so while nothing is learned the embeddings of the whole catalogue are
    computed once and looked up. They are computed again when the encoder's weights have changed
    (:meth:`refresh`). With gradients, what the batch needs is encoded: the items that it shows, or
    the catalogue where that is smaller.

    Reads ``observation`` (``heights``, ``item_id``, ``item_features``); writes
    ``("manager", "action_value") [*batch, L]`` float32.

    Args:
        env: Sets the shapes and brings the items.
        features: Length of the two embeddings.
        width: Channels of the encoders' first stage.
        stages: Of either encoder.
        blocks: Per stage.
        hidden: Width of the head.
        view_size: Pixels of a view along either axis, at most.
        autocast: Whether the encoders run in bfloat16.
    """

    def __init__(
        self,
        env: PackingEnv,
        *,
        features: int,
        width: int,
        stages: int,
        blocks: int,
        hidden: int,
        view_size: int,
        autocast: bool,
    ) -> None:
        super().__init__()
        self.in_keys = [("observation", name) for name in ("heights", "item_id", "item_features")]
        self.out_keys = [("manager", "action_value")]
        self.height, self.num_visible = env.params.height, env.params.num_visible
        self.autocast = autocast
        size = {"width": width, "stages": stages, "blocks": blocks}
        self.container = ResNet(1, features, **size)
        self.items = ResNet(6, features, **size)
        self.head = nn.Sequential(
            nn.Linear(3 * features + len(ITEM_FEATURES), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )
        begin_small(self.head[-1].weight, self.head[-1].bias)
        views = principal_views(env.catalogue.tensors(), env.params, view_size)
        self.register_buffer("views", views, persistent=False)
        self.register_buffer("embeddings", views.new_zeros(len(views), features), persistent=False)
        self._encoded: int | None = None

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the values."""
        heights, item_id, features = (tensordict.get(key) for key in self.in_keys)
        shown = item_id[..., : self.num_visible]
        batch = shown.shape[:-1]
        value = self.action_value(
            heights.reshape(-1, *heights.shape[-2:]) / self.height,
            shown.reshape(-1, self.num_visible),
            features[..., : self.num_visible, :].reshape(-1, self.num_visible, features.shape[-1]),
        )
        return tensordict.set(self.out_keys[0], value.reshape(*batch, self.num_visible))

    def action_value(
        self,
        heightmap: Float[Tensor, "B X Y"],
        item_id: Int[Tensor, "B L"],
        features: Float[Tensor, "B L F"],
    ) -> Float[Tensor, "B L"]:
        """The values of the visible items; of places that hold none they mean nothing."""
        with torch.autocast(heightmap.device.type, torch.bfloat16, enabled=self.autocast):
            container = self.container(heightmap[:, None])
        there = (item_id >= 0)[..., None]
        items = torch.where(there, self.embed(item_id.clamp(min=0)), 0.0)
        mean = items.sum(1) / there.sum(1).clamp(min=1)
        state = torch.cat((container.float(), mean), -1)
        state = state[:, None].expand(-1, item_id.shape[1], -1)
        return self.head(functional.relu(torch.cat((state, items, features), -1))).squeeze(-1)

    def embed(self, item_id: Int[Tensor, "B L"]) -> Float[Tensor, "B L E"]:
        """The items' embeddings: with gradients computed, without them looked up."""
        learns = torch.is_grad_enabled() and self.items.out.weight.requires_grad
        if not learns:
            self.refresh()
            return self.embeddings[item_id]
        if len(self.views) <= item_id.numel():
            return self._encode(self.views)[item_id]
        return self._encode(self.views[item_id.flatten()]).unflatten(0, item_id.shape)

    def refresh(self) -> None:
        """Encode the catalogue if the encoder has changed since it was last encoded.

        Asks the weights' version counters, which the host knows: nothing is read from the device.
        Fused optimizers leave them alone; whoever steps one must count the change by
        ``torch.autograd.graph.increment_version``, as ``GatedAdam`` does.
        Inside ``torch.compile`` the counters cannot be asked: call this between steps.
        """
        if torch.compiler.is_compiling():
            return
        version = sum(weight._version for weight in self.items.parameters())
        if version == self._encoded:
            return
        with torch.no_grad():
            pieces = [self._encode(views) for views in self.views.split(_PIECE)]
            self.embeddings.copy_(torch.cat(pieces))
        self._encoded = version

    def _encode(self, views: Float[Tensor, "N 6 P P"]) -> Float[Tensor, "N E"]:
        with torch.autocast(views.device.type, torch.bfloat16, enabled=self.autocast):
            return self.items(views).float()
