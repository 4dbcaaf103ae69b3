"""The subcommands of ``packing``: what each is for, and where it is carried out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A subcommand.

    Attributes:
        summary: One line.
        run: ``module:function`` that carries it out and returns the exit code.
        groups: The groups its help lists.
        examples: Command lines to copy.
        sweeps: Whether it takes ``--multirun``.
        arguments: ``module:function`` that adds the arguments of a command that takes no settings
            to its parser; ``run`` then receives what argparse read.
        words: ``module:function`` that turns WHAT, and what follows it, into settings, where the
            command begins with one.
    """

    summary: str
    run: str
    groups: tuple[str, ...]
    examples: tuple[str, ...]
    sweeps: bool = False
    arguments: str | None = None
    words: str | None = None


TASK = ("env", "items", "generator", "reward")
COMMANDS = {
    "train": Command(
        "train an agent (and compare it: evaluation.instances=64)",
        "agents.cli.train:train",
        (*TASK, "agent", "network", "collector", "replay", "trainer", "logger", "experiment"),
        (
            "packing train trainer.minutes=5",
            "packing train items=meshes items.paths=my_parts items.unit=mm",
            "packing train agent=dqn env=irregular env.num_envs=64 trainer.frames=1e6",
            "packing train --multirun seed=0,1,2 agent.lr=1e-3,3e-4",
        ),
        sweeps=True,
    ),
    "eval": Command(
        "compare a trained policy and heuristics on held-out instances",
        "agents.cli.eval:evaluate",
        (*TASK, "agent"),
        (
            "packing eval checkpoint=runs/20250131-120000-irregular evaluation.instances=256",
            "packing eval env=irregular 'evaluation.heuristics=[lowest_z,first_fit]'",
            "packing eval checkpoint=RUN plan=plan.json evaluation.picture=packed.png",
        ),
        sweeps=True,
    ),
    "play": Command(
        "play one episode and print every decision",
        "agents.cli.show:play",
        (*TASK, "agent"),
        ("packing play agent.name=lowest_z", "packing play checkpoint=RUN instance=3 frames=out"),
    ),
    "render": Command(
        "draw an episode: PNG, GIF, or an HTML page with a slider",
        "agents.cli.show:render",
        (*TASK, "agent"),
        ("packing render checkpoint=RUN out=episode.html", "packing render out=episode.gif"),
    ),
    "items": Command(
        "list a catalogue, with what its files were warned about",
        "agents.cli.show:items",
        ("env", "items"),
        ("packing items", "packing items items=meshes items.paths=my_parts items.unit=mm"),
    ),
    "bench": Command(
        "measure speed and what it costs, and say on what",
        "agents.bench.command:run",
        ("env", "agent"),
        (
            "packing bench step env=cuboid_online 'bench.rows=[1,1024]' out=step.json",
            "packing bench train 'bench.agents=[dqn,ppo]' env=irregular threads=2",
            "packing bench compare before.json after.json",
        ),
        words="agents.bench.command:settings",
    ),
    "inspect": Command(
        "find what broke a run whose updates are no numbers any more",
        "agents.cli.inspect:inspect",
        (),
        ("packing inspect RUN", "packing inspect RUN/black_box --device cpu"),
        arguments="agents.cli.inspect:add_arguments",
    ),
    "validate": Command(
        "play published protocols and compare with what was printed (exit 1 on a miss)",
        "agents.cli.validate:command",
        (),
        (
            "packing validate",
            "packing validate --seeds 5 --json validation.json",
            "packing validate --full",
        ),
        arguments="agents.cli.validate:add_arguments",
    ),
    "check": Command(
        "derive every claim of packing plans again",
        "agents.cli.check:check",
        (),
        (
            "packing eval env=irregular 'evaluation.heuristics=[lowest_z]' plan=plan.json",
            "packing check plan.json",
            "packing check --json plans/*.json",
        ),
        arguments="agents.cli.check:add_arguments",
    ),
}
