"""Planning: try decisions on copies of the state, keep the best and continue from it.

`get_state` and `reset(state, set_state=True)` turn the batched environment into a simulator: every
row continues the same episode with a different first decision, and a heuristic plays it out.

python examples/07_planning_by_search.py
"""

import torch
from tensordict import TensorDict

import packing_env as pe
from agents import heuristics


def first_row(state: TensorDict, rows: int) -> TensorDict:
    """Return the state of the first row, copied to all rows."""
    return state[:1].expand(rows).clone()


def play_out(env: pe.PackingEnv, root: TensorDict, policy: torch.nn.Module) -> torch.Tensor:
    """Play every row to its end and return the final utilizations."""
    while not root["done"].all():
        root = env.step_mdp(env.step(policy(root)))
    return root["metrics", "utilization"].squeeze(-1)


def main(width: int = 16, seed: int = 0, **overrides: object) -> tuple[float, float]:
    options = {"num_envs": width, "split": "test", "draw": "sequential", **overrides}
    env = pe.make_env("irregular", **options)
    policy = heuristics.build("heightmap_minimization", env)
    torch.manual_seed(seed)

    env.reset()
    state = first_row(env.get_state(), width)
    alone = play_out(env, env.reset(state.clone(), set_state=True), policy)[0]

    root = env.reset(state.clone(), set_state=True)
    while not root["done"].all():
        # row 0 takes the decision of the heuristic, the others random legal ones
        choice = env.rand_action(root.clone())["action"]
        choice[0] = policy(root.clone())["action"][0]
        after = env.step_mdp(env.step(root.set("action", choice)))
        ahead = env.get_state()
        filled = play_out(env, after, policy)
        best = int(filled.argmax())  # planning may read from the device; a training loop should not
        root = env.reset(first_row(ahead[best:], width), set_state=True)
    found = root["metrics", "utilization"][0]
    print(f"heuristic alone {float(alone):.3f}, with search over {width} rows {float(found):.3f}")
    return float(alone), float(found)


if __name__ == "__main__":
    main()
