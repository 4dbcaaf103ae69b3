"""TorchRL's DQNTrainer, composed from its Hydra groups with `env: packing` as one of them.

python examples/09_torchrl_trainers.py

This is for programs that are configured like TorchRL's sota-implementations. `packing train` is
faster, because it reads nothing from the device between two log lines. PPOTrainer and SACTrainer
are composed in the same way (docs/how-to/torchrl-trainers.md).
"""

import tempfile
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from tensordict import TensorDictBase

from packing_env.shells import torchrl_groups

CONFIG = """
defaults:
  - env@training_env: transformed_env
  - env@training_env.base_env: packing
  - transform@training_env.transform: reward_sum
  - collector@collector: sync
  - replay_buffer@replay_buffer: tensordict
  - storage@replay_buffer.storage: lazy_tensor
  - loss@loss: dqn
  - target_net_updater@target: soft
  - optimizer@optimizer: adam
  - trainer@trainer: dqn
  - _self_      # last, so that the values below override the options above

training_env:
  base_env:     # every argument of packing_env.make_env
    task: irregular
    num_envs: 8
    reward: {utilization: 1.0, height: 0.1}
  transform: {in_keys: [reward], out_keys: [reward_sum]}

value_network:
  _target_: torchrl.modules.QValueActor
  module:
    _target_: agents.networks.ScoreMaps
    env: ${training_env.base_env}     # a second environment, for its shapes
    channels: 8
  spec: {_target_: builtins.getattr, _args_: ["${training_env.base_env}", action_spec_unbatched]}
  action_space: categorical
  action_mask_key: action_mask

collector:
  _partial_: true
  create_env_fn: ${training_env}
  frames_per_batch: 64
  total_frames: 512
  track_traj_ids: false               # ids cost a host read per step
  auto_register_policy_transforms: false
replay_buffer:
  batch_size: 16
  storage: {max_size: 1000}
  sampler:                            # TorchRL's sampler needs its compiled extension
    _target_: agents.replay.DevicePrioritizedSampler
    max_capacity: ${replay_buffer.storage.max_size}
loss: {_partial_: true, action_space: categorical, double_dqn: true, gamma: 0.95}
target: {tau: 0.05}
optimizer: {lr: 0.001}

trainer:
  value_network: ${value_network}
  greedy_module:
    _target_: torchrl.modules.EGreedyModule
    _partial_: true
    annealing_num_steps: ${collector.total_frames}
    action_mask_key: action_mask      # exploration draws legal actions only
  collector: ${collector}
  replay_buffer: ${replay_buffer}
  loss_module: ${loss}
  target_net_updater: ${target}
  optimizer: ${optimizer}
  total_frames: ${collector.total_frames}
  optim_steps_per_batch: 4
  logger: null
  save_trainer_file: null
  progress_bar: false
"""


def main(num_envs: int = 8, total_frames: int = 512, **overrides: object) -> list[float]:
    torchrl_groups.register()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.yaml").write_text(CONFIG, encoding="utf-8")
        with initialize_config_dir(folder, version_base="1.3"):
            config = compose("config", [f"collector.total_frames={total_frames}"])
    config.collector.frames_per_batch = 8 * num_envs
    config.training_env.base_env.update({"num_envs": num_envs, **overrides})
    trainer = instantiate(config.trainer)
    filled = []

    def watch(batch: TensorDictBase) -> TensorDictBase:
        finished = batch["next", "done"].squeeze(-1)
        if finished.any():
            filled.append(float(batch["next", "metrics", "utilization"][finished].mean()))
        return batch

    trainer.register_op("batch_process", watch)
    trainer.train()
    print(f"{trainer.collected_frames} frames; utilization of the episodes that ended, per batch:")
    print(" ".join(f"{share:.3f}" for share in filled))
    return filled


if __name__ == "__main__":
    main()
