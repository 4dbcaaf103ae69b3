"""The subcommand ``adapt``: fine-tune the weights of a run on a history of orders.

The last orders of the history are held out. The new weights are saved only if they pack these
orders better than the old ones, beyond chance.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from omegaconf import DictConfig, open_dict

from agents.cli.eval import compare, describe, origin
from agents.cli.train import build_trainer, meta_of
from agents.config import build
from agents.config.compose import compose
from agents.config.folders import ConfigError, as_config_errors
from agents.config.imports import conf_folders
from agents.config.keys import Request
from agents.config.saved import adopt
from agents.loggers.console import PlainConsole
from agents.loggers.logging import NullLogger
from agents.loggers.progress import ProgressBar
from agents.training import checkpoint, fine_tuning, runs
from agents.training.evaluate import paired_difference
from agents.training.loading import FROM_RUN
from agents.training.process import StoppedError, StopSignals
from agents.training.resume import load_policy
from packing_env.generators.cuboids.files import read_loads
from packing_env.values import check_number

HELD_OUT = 0.3
"""Share of the orders that are held out."""
LEAST = 20
"""Smallest number of held-out orders; with fewer, the interval of the gain is not reliable."""
_ENDLESS = 10**12
"""More decisions than any training makes, so that only the time limit ends it."""


def adapt(options: argparse.Namespace) -> int:
    """Train on the history, compare new and old weights, and save the new ones if they gain.

    Raises:
        StoppedError: A signal requested a stop; nothing is saved.
    """
    # 1. Build everything that may fail before a folder is made; the old weights must fit.
    console = PlainConsole()
    check_number("--minutes", options.minutes, above=0.0)
    saved = checkpoint.load(options.run)
    config = _configured(options, saved)
    with as_config_errors():
        held_out = build.build_held_out(config)
        old = load_policy(config, saved, held_out)
        trainer, _ = build_trainer(config, saved)
    folder = runs.new_folder(options.out, str(config.name))
    words = [options.run, f"--history={options.history}", f"--minutes={options.minutes:g}"]
    describe(folder, config, Request("adapt", words, []))
    learned_from = len(trainer.collector.env.instances)
    console.say(
        f"{options.history}: {learned_from} orders to learn from, "
        f"{config.evaluation.instances} held out"
    )
    # 2. Train, then play the held-out orders with both weights.
    with StopSignals() as stop:
        bar = ProgressBar(console, trainer.total, trainer.budget)
        try:
            finished = trainer.run(NullLogger(folder), bar, should_stop=stop.requested)
        finally:
            bar.close()
            trainer.collector.close()
        if not finished:
            raise StoppedError(f"stopped on request; the weights of {options.run} stay in use")
        policies = {"new": trainer.agent.policy, "old": old}
        training = {"frames": trainer.frames, "seconds": trainer.elapsed}
        results = {"training": training, "checkpoint": str(saved.path), **origin(config)}
        played = compare(
            config, held_out, policies, folder,
            results=results, should_stop=stop.requested, console=console,
        )  # fmt: skip
    # 3. Keep the better weights.
    gain = paired_difference(played["new"], played["old"])
    text = f"the gain on {config.evaluation.instances} held-out orders is {gain}"
    if gain.mean - gain.half_width > 0:
        state = trainer.state_dict(replay=False)
        checkpoint.save(folder, trainer.frames, state, meta_of(config))
        console.say(f"{text}: saved the new weights, checkpoint={folder}")
    else:
        console.say(f"{text}, which may be chance: keep the old weights, checkpoint={options.run}")
    return 0


def _configured(options: argparse.Namespace, saved: checkpoint.Checkpoint) -> DictConfig:
    """Return the configuration of the training: the run's task and agent, on the history."""
    # 1. The run's task, on boxes of the history.
    run, folders = saved.meta.get("config", {}), conf_folders()
    agents = fine_tuning.names_of(saved.meta.get("agent"), folders)
    if not agents or run.get("items", {}).get("source") != "cuboids":
        raise ConfigError(f"{options.run} is not a trained agent that packs boxes; name one")
    mode = f"env.action_mode={run.get('env', {}).get('action_mode')}"
    own = compose("train", [f"agent={agents[0]}", mode], folders)
    config = adopt(own, run, FROM_RUN, [], folders)
    # 2. The history, of which the last orders are held out.
    orders = read_loads(options.history)
    held_out, longest = round(HELD_OUT * len(orders)), max(order.num_items for order in orders)
    if held_out < LEAST:
        raise ConfigError(
            f"{options.history} has {len(orders)} orders, of which {held_out} would be held out; "
            f"the comparison needs {LEAST}, so give at least {math.ceil(LEAST / HELD_OUT)} orders"
        )
    with open_dict(config):
        config.name, config.seed = f"{config.env.task}-adapted", options.seed
        config["items"] = {"source": "cuboids"}
        config["generator"] = {
            "name": "cuboid_sequences",
            "path": str(Path(options.history).absolute()),
            "unit": options.unit,
            "own_container": False,
            "holdout": HELD_OUT,
        }
        config.env.num_items = max(int(config.env.num_items), longest)
        config.evaluation.instances = held_out
        # 3. Weights that are already good need small steps and little exploration.
        config.trainer.frames = options.frames or _ENDLESS
        config.trainer.minutes = options.minutes
        agent = config.agent
        if agent.get("lr_end") is not None:
            agent.lr, agent.lr_frames = math.sqrt(agent.lr * agent.lr_end), None
        if agent.get("epsilon_end") is not None:
            agent.epsilon_start = agent.epsilon_end
    return config
