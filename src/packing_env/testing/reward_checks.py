"""Check of reward terms."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import Tensor

from packing_env.core import metrics, rewards, transition
from packing_env.tasks import make_env
from packing_env.testing.environment_checks import act
from packing_env.testing.episodes import current_state
from packing_env.testing.errors import CheckError, require


def check_reward(term: rewards.Term | str) -> None:
    """Check a reward term: a function ``(before, after, legal) -> [B]`` of metrics.

    It must return one finite float per row. Each value must depend on its row alone, and be equal
    in every call. The function must not change its arguments, and must not copy a value to Python
    (with ``if`` on a tensor, ``.item()`` or ``float(tensor)``).

    Raises:
        CheckError: A requirement fails; the message names it.
    """
    if isinstance(term, str):
        rewards.check_weights({term: 1.0})
        term = rewards.TERMS[term]
    # 1. One finite float per row, the same in every call; the arguments stay unchanged.
    before, after, legal = _transitions()
    copies = [{k: v.clone() for k, v in m.items()} for m in (before, after)]
    value = term(before, after, legal)
    require(isinstance(value, Tensor), f"a reward term must return a tensor, not {type(value)}")
    require(
        value.shape == legal.shape,
        f"a reward term must return one value per row, {tuple(legal.shape)}; got "
        f"{tuple(value.shape)}",
    )
    require(value.is_floating_point(), f"a reward term must return floats; got {value.dtype}")
    require(bool(value.isfinite().all()), f"the term is not finite: {value[~value.isfinite()]}")
    require(
        torch.equal(value, term(before, after, legal)),
        "two calls of the term give different values",
    )
    for metric, copy in zip((before, after), copies, strict=True):
        changed = [k for k in copy if not torch.equal(metric[k], copy[k])]
        require(not changed, f"the term changed its argument {changed}; work on new tensors")

    def apply(convert: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute the term from converted arguments."""
        earlier, later = ({k: convert(v) for k, v in m.items()} for m in (before, after))
        return term(earlier, later, convert(legal))

    # 2. Each row alone gives the same value.
    rows = [slice(i, i + 1) for i in range(len(legal))]
    one = torch.cat([apply(operator.itemgetter(row)) for row in rows])
    require(
        bool(torch.allclose(one, value, rtol=1e-9, atol=1e-12)),
        "a row's value depends on the other rows (a mean or a maximum over the batch?)",
    )
    # 3. Tensors on the meta device have no values, so a read of one raises an error.
    try:
        apply(lambda v: v.to("meta"))
    except (RuntimeError, NotImplementedError) as error:
        raise CheckError(
            f"the term reads a value back to Python, or needs another device: {error}; use "
            "torch.where instead of `if`, and tensors on the metrics' device"
        ) from error


def _transitions() -> tuple[rewards.Metrics, rewards.Metrics, Tensor]:
    """Return metrics before and after some legal and illegal decisions, and which were legal.

    The rows of all steps are concatenated.
    """
    env = make_env("irregular", 8, illegal_action="noop", num_items=8, pool_size=64)
    root, rows = env.reset(), []
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        state = current_state(env)
        before = metrics.measure(state, env.params)
        root, _ = act(env, root, generator)
        if step % 3 == 2:
            root["action"] = torch.where(torch.arange(8) % 2 == 0, -1, root["action"])
        count = state["illegal_actions"].clone()  # a step may change this tensor in place
        live = ~transition.is_done(state)
        root = env.step_mdp(env.step(root))
        state = current_state(env)
        after = metrics.measure(state, env.params)
        rows.append((before, after, live & (state["illegal_actions"] == count)))
    before = {name: torch.cat([b[name] for b, _, _ in rows]) for name in metrics.NAMES}
    after = {name: torch.cat([a[name] for _, a, _ in rows]) for name in metrics.NAMES}
    return before, after, torch.cat([legal for _, _, legal in rows])
