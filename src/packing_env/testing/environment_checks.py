"""Check of a whole environment."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import check_env_specs

from packing_env.core.orientation import decode_placement
from packing_env.core.random import choose_uniform
from packing_env.envs import PackingEnv
from packing_env.testing.episodes import current_scene
from packing_env.testing.errors import require
from packing_env.testing.referee import Referee


def check_env(env: PackingEnv, num_steps: int = 30, seed: int = 0) -> None:
    """Check an environment: specs, masks, the reference program, illegal actions, saved states.

    It takes ``num_steps`` random legal steps and compares up to four rows, the first and the last
    among them, with the reference program. If the reference does not implement a stability rule or
    a reward term, the comparisons that need it are skipped. An action mode that lists no placements
    (``ActionMode.lists``) must be able to express every legal placement. The environment is reset
    at the start; at the end it is in the middle of an episode. The reference program consists of
    plain loops: on one core, the check takes about 5 seconds for boxes, 15 for ``irregular``, 80
    for ``sls_nesting`` and 110 for ``nesting``, and a quarter of that with one row.

    Raises:
        CheckError: A check failed; the message names the row, the step and the difference.
    """
    require(
        isinstance(env, PackingEnv),
        f"check_env takes a PackingEnv, not {type(env).__name__}; for a TransformedEnv pass "
        "env.base_env",
    )
    _check_episodes(env, num_steps, seed)
    _check_specs(env)
    _check_state(env)
    _check_illegal(env)


def _check_episodes(env: PackingEnv, num_steps: int, seed: int) -> None:
    """Compare random legal steps with the reference program."""
    generator = torch.Generator().manual_seed(seed)
    root = env.reset()
    referee = Referee(env, mask_bits=64, seed=seed, num_rows=4)
    for step in range(num_steps):
        for key in env.mode.mask_keys:
            good = bool(root[key].any(-1).all())
            require(good, f"step {step}: a row has no legal action in its mask {key!r}")
        root, choice = act(env, root, generator)
        decisions = referee.decide(choice)
        following = env.step(root)["next"]
        referee.step(decisions, following)
        _check_metrics(following["metrics"], step)
        root = env.maybe_reset(env.step_mdp(root))
        referee.begin(following["done"], root)


def _check_specs(env: PackingEnv) -> None:
    """Check that each entry is within its spec, then run TorchRL's ``check_env_specs``."""
    following = env.step(env.rand_action(env.reset()))["next"]
    for key, spec in env.full_observation_spec.items(True, True):
        value = following.get(key)
        require(
            value is not None, f"the observation spec has {key!r}, but the step does not return it"
        )
        require(
            spec.is_in(value),
            f"{key!r} is outside its spec: {value.dtype} {tuple(value.shape)}, "
            f"{value.min().item():.6g}..{value.max().item():.6g}; the spec is {spec}",
        )
    check_env_specs(env, break_when_any_done="both")


def act(
    env: PackingEnv, root: TensorDictBase, generator: torch.Generator
) -> tuple[TensorDictBase, Tensor]:
    """Write a random legal action, drawn from ``generator``, into ``root``.

    Returns:
        ``root``, and the choice in the form that :meth:`Referee.decide` expects.
    """
    uniform = torch.rand(env.batch_size, generator=generator, dtype=torch.float64).to(env.device)
    if env.mode.lists:
        choice = choose_uniform(root["action_mask"], uniform)
        return root.set("action", choice), choice
    choice = choose_uniform(_legal(env), uniform.flatten())
    placement = decode_placement(choice, env.mode.num_orientations, env.params)
    for key, value in env.mode.encode(placement).items():
        root.set(key, value.view(*env.batch_size, *value.shape[1:]))
    return root, choice


def _legal(env: PackingEnv) -> Tensor:
    """Return ``[B, A]`` legal placements of the lattice; all True in terminated rows."""
    scene = current_scene(env)
    assert scene.maps is not None
    return scene.maps.legal.flatten(1) | scene.state["terminated"][:, None]


def _check_metrics(metrics: TensorDictBase, step: int) -> None:
    """Check ``0 <= U <= C <= P <= 1``, with a tolerance of 1e-6, or 1e-5 at the lid."""
    chain = [metrics[name].double() for name in ("utilization", "compactness", "pyramidality")]
    u, c, p = chain
    good = (u >= 0) & (u <= c * (1 + 1e-5)) & (c <= p * (1 + 1e-6)) & (p <= 1 + 1e-6)
    require(
        bool(good.all()),
        f"step {step}: utilization <= compactness <= pyramidality <= 1 is violated: "
        f"{torch.cat(chain, -1)[~good.squeeze(-1)][:1].tolist()}; is an item's volume larger than "
        "its maps enclose?",
    )


def _check_state(env: PackingEnv) -> None:
    """Check that a restored state continues bit for bit."""
    root = env.rand_action(env.reset())
    env.step(root)
    saved = env.get_state()
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        root = env.reset(saved.clone(), set_state=True)
        results.append(env.step(env.rand_action(root))["next"].clone())
    for key, value in results[0].items(True, True):
        same = torch.equal(value, results[1].get(key))
        require(same, f"two resets to the same get_state() give different values of {key!r}")


def _check_illegal(env: PackingEnv) -> None:
    """Check that an illegal action does not raise, is counted, and changes nothing."""
    root = env.reset()
    if env.takes.get("action") == (torch.int64, env.batch_size):  # one index, which has a mask
        legal = root["action_mask"]
        root.set("action", torch.where(legal.all(-1), -1, (~legal).int().argmax(-1)))
    else:
        for key, (dtype, shape) in env.takes.items():
            root.set(key, torch.full(shape, -2, dtype=dtype, device=env.device))
    before = env.get_state()["heightmap"]
    following = env.step(root)["next"]
    if env.params.illegal_action == "project":
        return
    require(
        torch.equal(env.get_state()["heightmap"], before),
        f"illegal_action={env.params.illegal_action!r}: an illegal action changed the heightmap",
    )
    require(
        bool((following["metrics", "illegal_actions"] == 1).all()),
        "an illegal action is not counted in ('metrics', 'illegal_actions')",
    )
