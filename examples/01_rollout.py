"""A rollout: sixteen containers at once, random legal actions, and the contents of the tensors.

python examples/01_rollout.py
"""

import packing_env as pe


def main(num_envs: int = 16, steps: int = 40, **overrides: object) -> float:
    env = pe.make_env("irregular", num_envs=num_envs, device="cpu", seed=0, **overrides)
    print(f"{len(env.catalogue)} items, {env.action_spec.n:,} actions, {env.params.grid} cells")

    # One step by hand. True in action_mask means legal; at least one action always is.
    root = env.reset()
    print("legal actions per container:", root["action_mask"].sum(-1).tolist())
    root = env.rand_action(root)  # uniform over the legal actions
    transition, root = env.step_and_maybe_reset(root)  # finished containers restart
    print("reward:", transition["next", "reward"].squeeze(-1).tolist())

    # Many steps. `next` of a finished row holds its terminal observation and metrics.
    rollout = env.rollout(steps, break_when_any_done=False)
    done = rollout["next", "done"]
    utilization = rollout["next", "metrics", "utilization"][done]
    packed = rollout["next", "metrics", "items_packed"][done]
    print(f"{done.sum()} episodes ended, with {packed.mean():.1f} items and "
          f"{utilization.mean():.1%} of the container filled")  # fmt: skip
    return float(utilization.mean())


if __name__ == "__main__":
    main()
