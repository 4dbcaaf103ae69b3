"""The environment in a TorchRL program: Collector, ReplayBuffer, DQNLoss.

python examples/02_torchrl_collector.py

This loop is for programs that use TorchRL already. The loop of `packing train` is faster, because
it never waits for the device.
"""

import torch
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import QValueModule
from torchrl.objectives import DQNLoss, SoftUpdate

import packing_env as pe
from agents.networks import ScoreMaps
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper


def main(num_envs: int = 8, total_frames: int = 256, **overrides: object) -> list[float]:
    env = pe.make_env("irregular", num_envs=num_envs, **overrides)
    network = ScoreMaps(env, channels=8)
    # Masked epsilon-greedy with one draw per row. TorchRL's EGreedyModule reads from the device.
    policy = PolicyWrapper(network, epsilon=EpsilonSchedule(1.0, 0.1, total_frames))

    choose = QValueModule(action_space="categorical", action_mask_key="action_mask")
    loss = DQNLoss(
        TensorDictSequential(network, choose), action_space="categorical", delay_value=True
    )
    target = SoftUpdate(loss, tau=0.01)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(1_000), batch_size=16)

    collector = Collector(
        env,
        policy,
        frames_per_batch=num_envs * 4,
        total_frames=total_frames,
        track_traj_ids=False,  # ids cost a host read per step
        auto_register_policy_transforms=False,  # no recurrent policy
    )
    losses = []
    for batch in collector:  # [B, T]
        # store transitions, not sequences of T; large extras such as values may be dropped first
        replay.extend(batch.contiguous().reshape(-1))
        policy.set_frames(len(losses) * batch.numel())
        value = loss(replay.sample())["loss"]
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        target.step()
        losses.append(float(value.detach()))
    collector.shutdown()
    print(f"{len(losses)} updates, loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
