"""Planning: try decisions on copies of the state, keep the best, go on from there.

`get_state` and `reset(state, set_state=True)` make the batched environment a simulator: here every
row continues the same episode with another first decision and is played out by a heuristic.

python examples/07_planning_by_search.py
"""

import torch
from tensordict import TensorDict

import packing_env as pe
from agents import heuristics


def first_row(state: TensorDict, rows: int) -> TensorDict:
    """The first row's state, in all rows."""
    return state[:1].expand(rows).clone()


def play_out(env: pe.PackingEnv, seen: TensorDict, policy: torch.nn.Module) -> torch.Tensor:
    """Play every row to its end; what each is filled to."""
    while not seen["done"].all():
        seen = env.step_mdp(env.step(policy(seen)))
    return seen["metrics", "utilization"].squeeze(-1)


def main(width: int = 16, seed: int = 0, **overrides: object) -> tuple[float, float]:
    options = {"num_envs": width, "split": "test", "draw": "sequential", **overrides}
    env = pe.make_env("irregular", **options)
    policy = heuristics.build("heightmap_minimization", env)
    torch.manual_seed(seed)

    env.reset()
    state = first_row(env.get_state(), width)
    alone = play_out(env, env.reset(state.clone(), set_state=True), policy)[0]

    seen = env.reset(state.clone(), set_state=True)
    while not seen["done"].all():
        # every row another decision: the heuristic's in row 0, random legal ones in the others
        choice = env.rand_action(seen.clone())["action"]
        choice[0] = policy(seen.clone())["action"][0]
        after = env.step_mdp(env.step(seen.set("action", choice)))
        ahead = env.get_state()
        filled = play_out(env, after, policy)
        best = int(filled.argmax())  # a plan may read the device; a training loop should not
        seen = env.reset(first_row(ahead[best:], width), set_state=True)
    found = seen["metrics", "utilization"][0]
    print(f"heuristic alone {float(alone):.3f}, with search over {width} rows {float(found):.3f}")
    return float(alone), float(found)


if __name__ == "__main__":
    main()
