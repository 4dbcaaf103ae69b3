"""Configurations of TorchRL's trainers: those of the documentation, and DQN."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/torchrl-trainers.md"
NAMED = re.compile(r"^```yaml\n# (\w+)\.yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A block of the page that names its file."""
FILES = dict(NAMED.findall(PAGE.read_text(encoding="utf-8")))
"""By the name to compose."""
ROWS, PER_BATCH, FRAMES = 4, 40, 160
"""Environments, and frames per batch and in all, as on the page."""
COMMON_GROUPS = FILES["ppo"].partition("defaults:\n")[2].partition("\n  - sampler")[0]

DQN = f"""
defaults:
{COMMON_GROUPS}
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

FILES |= {"dqn": DQN, "prioritized": PRIORITIZED, "env": "defaults: [env@env: packing, _self_]"}
