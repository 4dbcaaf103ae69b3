"""Configurations of TorchRL's trainers, as YAML, on a task that is built in milliseconds."""

from __future__ import annotations

ROWS, PER_BATCH, FRAMES = 4, 40, 160
"""Environments, and frames per batch and in all."""

TASK = "training_env.base_env"
"""Where the arguments of ``make_env`` are."""

COMMON = f"""
training_env:
  base_env:
    num_envs: {ROWS}
    items: {{source: cuboids, extents: [[0.02, 0.02, 0.02], [0.04, 0.02, 0.02]]}}
    container: [0.08, 0.08, 0.06]
    cell: 0.02
    num_items: 6
    pool_size: 24
  transform:
    transforms:
      - ${{reward_sum}}
      - _target_: torchrl.envs.FlattenObservation
        _convert_: all
        first_dim: -2
        last_dim: -1
        in_keys: [{{_target_: builtins.tuple, _args_: [[observation, heightmap]]}}]
        out_keys: [ground]
reward_sum: {{in_keys: [reward], out_keys: [reward_sum]}}

collector:
  _partial_: true
  create_env_fn: ${{training_env}}
  frames_per_batch: {PER_BATCH}
  total_frames: {FRAMES}
  auto_register_policy_transforms: true
replay_buffer:
  batch_size: 20
  storage: {{max_size: 120}}
optimizer: {{lr: 0.01}}
trainer:
  collector: ${{collector}}
  loss_module: ${{loss}}
  optimizer: ${{optimizer}}
  replay_buffer: ${{replay_buffer}}
  total_frames: ${{collector.total_frames}}
  optim_steps_per_batch: 2
  logger: null
  save_trainer_file: null
  progress_bar: false
"""
"""A tiny task with the transforms that the configurations below need, and what they share."""

COMMON_GROUPS = """
  - env@training_env: transformed_env
  - env@training_env.base_env: packing
  - transform@training_env.transform: compose
  - transform@reward_sum: reward_sum
  - collector@collector: sync
  - replay_buffer@replay_buffer: tensordict
  - storage@replay_buffer.storage: lazy_tensor
  - optimizer@optimizer: adam
"""

DQN = f"""
defaults: {COMMON_GROUPS}
  - loss@loss: dqn
  - target_net_updater@target: soft
  - trainer@trainer: dqn
  - common
  - _self_
value_network:
  _target_: torchrl.modules.QValueActor
  module:
    _target_: agents.networks.ScoreMaps
    env: ${{training_env.base_env}}
    channels: 4
  spec:
    _target_: builtins.getattr
    _args_: ["${{training_env.base_env}}", action_spec_unbatched]
  action_space: categorical
  action_mask_key: action_mask
loss: {{_partial_: true, action_space: categorical, double_dqn: true, gamma: 0.9}}
target: {{tau: 0.1}}
trainer:
  value_network: ${{value_network}}
  target_net_updater: ${{target}}
  greedy_module:
    _target_: torchrl.modules.EGreedyModule
    _partial_: true
    eps_end: 0.2
    annealing_num_steps: {FRAMES}
    action_mask_key: action_mask
"""
"""TorchRL's loss and masked exploration around one of our networks."""

PRIORITIZED = """
defaults:
  - dqn
  - _self_
replay_buffer:
  sampler:
    _target_: agents.replay.DevicePrioritizedSampler
    max_capacity: ${replay_buffer.storage.max_size}
"""

PPO = f"""
defaults: {COMMON_GROUPS}
  - sampler@replay_buffer.sampler: without_replacement
  - network@network: mlp
  - model@critic: value
  - loss@loss: ppo
  - trainer@trainer: ppo
  - common
  - _self_
actor:
  _target_: torchrl.modules.ProbabilisticActor
  _convert_: all
  module:
    _target_: agents.networks.ScoreMaps
    env: ${{training_env.base_env}}
    channels: 4
  in_keys: {{logits: action_value, mask: action_mask}}
  distribution_class: {{_target_: hydra.utils.get_class, path: torchrl.modules.MaskedCategorical}}
  return_log_prob: true
network: {{in_features: 16, out_features: 1, num_cells: [16]}}
critic: {{network: "${{network}}", in_keys: [ground], out_keys: [state_value]}}
loss: {{actor_network: "${{actor}}", critic_network: "${{critic}}", entropy_coeff: 0.01}}
collector: {{policy: "${{actor}}"}}
replay_buffer:
  storage: {{max_size: {PER_BATCH}}}
  sampler: {{drop_last: true}}
trainer: {{num_epochs: 2, optim_steps_per_batch: null}}
"""

SAC = f"""
defaults: {COMMON_GROUPS}
  - network@actor_layers: mlp
  - network@critic_layers: mlp
  - model@actor: tanh_normal
  - model@critic: value
  - loss@loss: sac
  - target_net_updater@target: soft
  - trainer@trainer: sac
  - common
  - _self_
training_env: {{base_env: {{action_mode: continuous}}}}
actor_layers: {{in_features: 16, out_features: 6, num_cells: [16]}}
critic_layers: {{in_features: 19, out_features: 1, num_cells: [16]}}
actor:
  network: ${{actor_layers}}
  in_keys: [ground]
  param_keys: [loc, scale]
  out_keys: [action]
  return_log_prob: true
critic:
  network: ${{critic_layers}}
  in_keys: [ground, action]
  out_keys: [state_action_value]
loss: {{actor_network: "${{actor}}", qvalue_network: "${{critic}}", gamma: 0.9}}
target: {{tau: 0.1}}
collector: {{policy: "${{actor}}"}}
trainer: {{target_net_updater: "${{target}}"}}
"""
"""Everything out of TorchRL's groups: the environment's actions are points of a box."""

FILES = {
    "common": COMMON,
    "dqn": DQN,
    "prioritized": PRIORITIZED,
    "ppo": PPO,
    "sac": SAC,
    "env": "defaults: [env@env: packing, _self_]",
}
"""By the name to compose."""
