"""n-step returns, one stream per row, on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from packing_env.values import Count, Share, read


class NStep:
    """Conversion of one-step transitions ``[B]`` into n-step transitions, row by row.

    The transition of step t is returned ``n_steps - 1`` steps later, when its window is complete.
    Every call after the first few returns exactly B rows, so no shape depends on the data. A window
    ends early if its episode ends. The returned entries are:

    - ``("next", "reward")``: ``sum over k < m of gamma^k r_{t+k}``, where m is the length of the
      window;
    - ``("next", ...)``: the state after those m steps, which is the true terminal state if the
      episode ended there;
    - ``steps_to_next_obs [B, 1]``: m, as TorchRL's value estimators read it;
    - ``discount [B, 1]``: the factor of that state's value, which is ``gamma^m``, or 0 if the state
      is terminated. Truncated states are bootstrapped.

    Args:
        n_steps: Longest window.
        gamma: Discount per step.
    """

    def __init__(self, n_steps: int = 1, gamma: float = 0.99) -> None:
        self.n_steps: int = read("n_steps", n_steps, Count)
        self.gamma: float = read("gamma", gamma, Share)
        self._ring: TensorDictBase | None = None
        self._cursor = 0
        self._held = 0

    def push(self, transition: TensorDictBase) -> TensorDictBase | None:
        """Add one step of every row; return the step whose window is now complete."""
        if self._ring is None:
            empty: Any = torch.stack([torch.zeros_like(transition)] * self.n_steps)
            self._ring = empty.contiguous()
        if transition.batch_size != self._ring.batch_size[1:]:
            raise ValueError(
                f"n-step needs the same {self._ring.batch_size[1]} rows in every call, but got a "
                f"batch of {tuple(transition.batch_size)}"
            )
        self._ring[self._cursor] = transition
        self._cursor = (self._cursor + 1) % self.n_steps
        self._held += 1
        return self._pop() if self._held == self.n_steps else None

    def _pop(self) -> TensorDictBase:
        """Remove and return the oldest step, with a window up to the newest step."""
        assert self._ring is not None
        # 1. The slots of the window, oldest first.
        window = [(self._cursor - back) % self.n_steps for back in range(self._held, 0, -1)]
        following = self._ring.get("next")
        reward, done = following.get("reward"), following.get("done")
        # 2. Sum the rewards until the episode of a row ends; ``last`` is the position of the end.
        alive = torch.ones_like(done[0])
        total = torch.zeros_like(reward[0])
        length = torch.zeros_like(done[0], dtype=torch.int64)
        last = torch.zeros_like(length)
        for step, slot in enumerate(window):
            total = total + torch.where(alive, self.gamma**step * reward[slot], 0.0)
            length = length + alive
            last = torch.where(alive, slot, last)
            alive = alive & ~done[slot]
        self._held -= 1
        # 3. The state after the window, and the discount of its value.
        rows = torch.arange(last.shape[0], device=last.device)
        end = following[last.squeeze(-1), rows].set("reward", total)
        discount = torch.where(end.get("terminated"), 0.0, self.gamma**length)
        out = self._ring[window[0]].exclude("next").clone()
        return out.update(
            {"next": end, "discount": discount.to(total.dtype), "steps_to_next_obs": length}
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the pending steps, as tensors and numbers."""
        ring = {} if self._ring is None else self._ring.flatten_keys("/").clone().to_dict()
        return {"cursor": self._cursor, "held": self._held, "ring": ring}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._cursor, self._held = int(state["cursor"]), int(state["held"])
        if state["ring"]:
            shape = state["ring"]["next/done"].shape[:2]
            ring = TensorDict(dict(state["ring"]), shape).unflatten_keys("/")
            if self._ring is None:
                self._ring = ring.clone()
            else:
                self._ring.copy_(ring)
