"""The subcommands of ``packing``: their help, their arguments and the functions that run them.

Nothing heavy is imported here, so that help appears immediately.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Argument:
    """An argument of a command, declared as for ``ArgumentParser.add_argument``."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.names, self.options = names, options


def positive(text: str) -> int:
    """Parse a positive whole number."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 1 or more")
    return int(text)


def column(text: str) -> tuple[str, str]:
    """Parse ``TITLE=NAME``, the meaning of a column of an order; ``TITLE=`` leaves it out."""
    title, equals, name = text.rpartition("=")
    if not title.strip() or not equals:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be TITLE=NAME, as in 'Weight/pc (kg)=weight', or TITLE= to leave it out"
        )
    return title.strip(), name.strip()


@dataclass(frozen=True)
class Command:
    """A subcommand.

    Attributes:
        summary: One line.
        run: ``module:function`` that runs the command and returns the exit code.
        examples: Command lines to copy.
        groups: Groups of the configuration that its help lists.
        sweeps: Whether it accepts ``--multirun``.
        arguments: Arguments of a command without settings; ``run`` then receives the parsed
            namespace.
        description: Replaces the summary at the top of the help.
        words: ``module:function`` that turns the first words of the command line (WHAT and its
            files) into settings; None for commands without such words.
    """

    summary: str
    run: str
    examples: tuple[str, ...]
    groups: tuple[str, ...] = ()
    sweeps: bool = False
    arguments: tuple[Argument, ...] = ()
    description: str = ""
    words: str | None = None


CONSTRAINTS = (
    Argument("--clearance", metavar="LENGTH", help="gap between parts and to walls, as in 2mm"),
    Argument("--wall-clearance", metavar="LENGTH", help="gap to walls; default: --clearance"),
    Argument("--weight-limit", metavar="WEIGHT", help="largest weight in a container, as in 400kg"),
    Argument(
        "--balance",
        metavar="SHARE",
        help="largest offset of the centre of mass, as in 10%%",
    ),
    Argument(
        "--fragile",
        choices=("last", "top"),
        help="fragile parts come last, or carry only fragile parts",
    ),
    Argument("--support", metavar="SHARE", help="least support of each base, as in 80%%"),
    Argument("--door", choices=("top", "rear", "side"), help="where boxes come in; default top"),
    Argument("--preplaced", action="append", metavar="BOX", help="a fixed box: 50x50x20mm@0,0,0"),
)
"""Options of ``pack`` that add constraints to those of an order; named as in ``Constraints``."""
COLUMN = Argument(
    "--column", action="append", type=column, default=[], dest="columns", metavar="TITLE=NAME",
    help="a column's meaning: 'pc wt=weight'; 'CBM=' omits it",
)  # fmt: skip
PACK = (
    Argument(
        "parts", nargs="+", metavar="PART",
        help="a folder, mesh files, orders (.csv .xlsx .yaml .json); xN after a file: N times",
    ),
    Argument(
        "--container", action="append", required=True, metavar="SIZE",
        help="as in 240x180x150mm,number=2,cost=30; also weight_limit=500kg, name=A; a pallet: "
        "deck=144mm, overhang=20mm. For several, repeat it, or name a table",
    ),
    Argument(
        "--containers", type=positive, metavar="N",
        help="fill at most N; default: 1, or what --container states",
    ),
    Argument(
        "--choose", choices=("fewest", "cheapest", "balanced"), default="fewest",
        metavar="WHICH", help="fewest (default), cheapest, balanced (equal weights)",
    ),
    Argument("--fill", action="store_true", help="pack the order as often as it fits"),
    Argument("--seconds", type=float, default=30.0, help="time of the search; default 30"),
    Argument("--unit", help="unit of files that state none; default: --container's"),
    COLUMN,
    Argument("--cell", metavar="LENGTH", help="grid cell, used if the order has meshes, as in 5mm"),
    Argument(
        "--stability", default="com_hull", metavar="RULE",
        help="a rule, or stands (the strictest); default com_hull",
    ),
    *CONSTRAINTS,
    Argument("--seed", type=int, default=0, help="seed of the search"),
    Argument("--out", type=Path, default=Path("packed"), help="folder; default packed"),
    Argument("--pdf", action="store_true", help="also write the steps for printing: load.pdf"),
)  # fmt: skip
NEST = (
    PACK[0],
    Argument(
        "--container", action="append", required=True, metavar="SIZE",
        help="the build volume, as in 200x250x330mm",
    ),
    Argument(
        "--containers", type=positive, metavar="N",
        help="fill at most N containers; default 1",
    ),
    Argument("--clearance", metavar="LENGTH", help="gap between parts and to walls, as in 1mm"),
    Argument("--wall-clearance", metavar="LENGTH", help="gap to walls; default: --clearance"),
    Argument("--preplaced", action="append", metavar="BOX", help="empty box: 50x50x20mm@0,0,0"),
    Argument("--fill", action="store_true", help="nest the order as often as it fits"),
    Argument("--lowest", action="store_true", help="once all parts are packed, lower the nest"),
    Argument(
        "--allow-interlocking", action="store_true",
        help="allow parts that cannot be taken out in a straight line",
    ),
    Argument("--yaw", type=float, metavar="DEGREES", help="also turn about z by multiples of this"),
    Argument("--cell", metavar="LENGTH", help="side of a voxel, as in 2mm"),
    Argument("--seconds", type=float, default=60.0, help="time of the search; default 60"),
    Argument("--unit", help="unit of files that state none; default: --container's"),
    COLUMN,
    Argument("--seed", type=int, default=0, help="seed of the search"),
    Argument("--out", type=Path, default=Path("nested"), help="folder; default nested"),
)  # fmt: skip
VALIDATE = (
    Argument(
        "--full", action="store_true", help="also play slow protocols: more heuristics, and V4"
    ),
    Argument("--seeds", type=positive, default=1, metavar="N", help="seeds 0 to N-1"),
    Argument("--json", type=Path, metavar="PATH", help="write all numbers to a file"),
)
CHECK = (
    Argument("plans", nargs="+", type=Path, metavar="PLAN", help="plans: JSON, CSV or text"),
    Argument("--json", action="store_true", help="print the reports as a JSON list"),
    Argument("--physics", action="store_true", help="also simulate whether items stay in place"),
    Argument("--settings", type=Path, metavar="YAML", help="settings of the simulation"),
    Argument("--html", type=Path, metavar="PATH", help="write a 3-D page of the items at rest"),
    Argument("--unit", help="unit, if another program's plan states none"),
    Argument("--container", metavar="SIZE", help="container, if another program's plan has none"),
    Argument(
        "--stability", metavar="RULE", help="rule for boxes of another program's plan; default none"
    ),
    Argument(
        "--up", choices=("x", "y", "z"), help="upward axis of another program's plan; default z"
    ),
)
ADAPT = (
    Argument("run", metavar="RUN", help="a run, or pretrained/NAME"),
    Argument(
        "--history", type=Path, required=True, metavar="ORDERS",
        help="sequences of boxes (CSV or JSON), as for generator=cuboid_sequences, oldest first",
    ),
    Argument("--minutes", type=float, default=10.0, help="time of the training; default 10"),
    Argument("--frames", type=positive, metavar="N", help="end the training after N decisions"),
    Argument("--unit", help="unit of a history that states none; default: cells of the run"),
    Argument("--seed", type=int, default=0, help="seed of the training"),
    Argument("--out", type=Path, help="folder of the results; default runs/<time>-<task>-adapted"),
)  # fmt: skip

TASK = ("env", "items", "generator", "reward")
LEARNING = ("agent", "network", "collector", "replay", "trainer", "logger")
COMMANDS = {
    "train": Command(
        "train an agent (and evaluate it: evaluation.instances=64)",
        "agents.cli.train:train",
        (
            "packing train items=meshes items.paths=my_parts items.unit=mm",
            "packing train --multirun seed=0,1,2 agent.lr=1e-3,3e-4",
        ),
        groups=(*TASK, *LEARNING, "experiment"),
        sweeps=True,
    ),
    "eval": Command(
        "compare a trained policy and heuristics on held-out instances",
        "agents.cli.eval:evaluate",
        (
            "packing eval checkpoint=runs/20250131-120000-irregular plan=plan.json",
            "packing eval env=irregular 'evaluation.heuristics=[lowest_z,first_fit]'",
            "packing eval checkpoint=RUN plan=plan.json evaluation.picture=packed.png",
            "packing eval env=irregular physics=true evaluation.instances=16",
        ),
        groups=(*TASK, "agent"),
        sweeps=True,
    ),
    "play": Command(
        "play one episode and print every decision",
        "agents.cli.show:play",
        ("packing play agent.name=lowest_z", "packing play checkpoint=RUN instance=3 frames=out"),
        groups=(*TASK, "agent"),
    ),
    "render": Command(
        "draw an episode or a plan: PNG, GIF, MP4, HTML in 3-D, GLB, STL, PDF",
        "agents.cli.show:render",
        (
            "packing render checkpoint=RUN out=episode.html",
            "packing render plan=plan.json out=packed.glb",
            "packing render plan=plan.json out=load.pdf",
            "packing render out=episode.gif",
        ),
        groups=(*TASK, "agent"),
    ),
    "items": Command(
        "list a catalogue, with the warnings about its files",
        "agents.cli.show:items",
        ("packing items", "packing items items=meshes items.paths=my_parts items.unit=mm"),
        groups=("env", "items"),
    ),
    "pack": Command(
        "pack your parts: files with quantities, boxes, an order",
        "agents.cli.pack:pack",
        (
            "packing pack my_parts --container 240x180x150mm --seconds 20",
            "packing pack lid.stl x12 base.stl x6 --container 200x200x180mm --containers 3",
            "packing pack order.csv --container 300x200x150mm --container 400x300x200mm",
        ),
        arguments=PACK,
        description=(
            "Pack parts at their true size. Orders that contain only boxes are packed exactly, "
            "all others on a grid. Prints what is packed, and why parts are left over. Writes "
            "plan.json (for packing check), positions.csv and packed.png, .html (3-D, step by "
            "step), .glb and .stl. Several containers give plan-1.json, ..."
        ),
    ),
    "nest": Command(
        "nest parts in three dimensions, inside and below each other (powder bed)",
        "agents.cli.pack:nest",
        (
            "packing nest my_parts --container 200x250x330mm --clearance 1mm",
            "packing nest a.stl x12 b.stl x6 --container 200x250x330mm --lowest",
        ),
        arguments=NEST,
        description=(
            "Nest parts as in a powder bed, where nothing falls. A part may lie in a cavity or "
            "below an overhang of another part. The distance of two parts is at least the "
            "clearance, and the parts can be taken out one by one in straight lines. Writes the "
            "same files as packing pack."
        ),
    ),
    "bench": Command(
        "measure speed and memory, and print the hardware",
        "agents.bench.session:run",
        (
            "packing bench step env=cuboid_online 'bench.rows=[1,1024]' out=step.json",
            "packing bench train 'bench.agents=[dqn,ppo]' env=irregular threads=2",
            "packing bench compare before.json after.json",
        ),
        groups=("env", "agent"),
        words="agents.bench.session:settings",
    ),
    "validate": Command(
        "repeat published experiments and compare the numbers (exit 1 if one differs)",
        "agents.cli.validate:validate",
        (
            "packing validate",
            "packing validate --seeds 5 --json validation.json",
            "packing validate --full",
        ),
        arguments=VALIDATE,
    ),
    "check": Command(
        "verify packing plans with a separate program (exit 1 on a violation)",
        "agents.cli.check:check",
        (
            "packing eval env=irregular 'evaluation.heuristics=[lowest_z]' plan=plan.json",
            "packing check plan.json",
            "packing check plan.json --physics",
            "packing check --json plans/*.json",
            "packing check certificate.csv --unit cm --stability com_hull",
        ),
        arguments=CHECK,
        description=(
            "Verify packing plans with the reference program: every item must be inside, under the "
            "lid, disjoint, at its drop height, stable and supported as claimed. If not, the first "
            "violation in packing order is named, and the exit code is 1; it is 2 if a plan cannot "
            "be read or has an unknown key. --physics also places the items one by one in MuJoCo; "
            "the exit code is 1 if an item moves. Plans of BoxPacker, py3dbp, PackingSolver and "
            "BED-BPP, and JSON of containers and boxes, are read too: their boxes must be inside, "
            "apart, and on the floor or on other boxes."
        ),
    ),
    "export": Command(
        "write a trained policy as a program for torch or ONNX Runtime",
        "agents.cli.export:export",
        ("packing export RUN --out policy.pt2", "packing export RUN --format onnx --rows 8"),
        arguments=(
            Argument("run", metavar="RUN", help="a run, or pretrained/NAME"),
            Argument("--rows", type=positive, default=1, metavar="N", help="containers at a time"),
            Argument(
                "--format",
                choices=("torch_export", "onnx"),
                default="torch_export",
                help="torch_export (default), or onnx, which needs the extra onnx",
            ),
            Argument("--out", type=Path, help="default policy.pt2 or policy.onnx"),
        ),
        description=(
            "Export the greedy decision of a trained policy: observations and the action mask in, "
            "the action out. A program that runs the file needs only torch, or ONNX Runtime. The "
            "file is loaded again and compared with the policy in twenty decisions."
        ),
    ),
    "adapt": Command(
        "fine-tune a trained policy on your past orders; keep it only if it gains",
        "agents.cli.adapt:adapt",
        ("packing adapt pretrained/cuboid_online --history orders.csv --minutes 10",),
        arguments=ADAPT,
        description=(
            "Train the weights of a run on a history of orders of boxes, in its container and by "
            "its rules. The last 30 % of the orders are held out. The new weights are saved only "
            "if the 95 % interval of their gain in utilization on these orders, paired by order, "
            "is above zero."
        ),
    ),
    "runs": Command(
        "list runs, tabulate a sweep, compare runs",
        "agents.cli.runs:runs",
        ("packing runs", "packing runs runs/20250131-120000-sweep", "packing runs RUN OTHER_RUN"),
        arguments=(
            Argument(
                "places",
                nargs="*",
                type=Path,
                metavar="FOLDER",
                help="a folder of runs, or a run; default: runs",
            ),
        ),
        description=(
            "List the runs in a folder: the settings in which they differ, and their results. If "
            "you name several runs, they are compared: the settings that differ, and the "
            "utilization of every policy."
        ),
    ),
    "doctor": Command(
        "report what is installed, whether it works, and what would be slow here",
        "agents.cli.doctor:doctor",
        ("packing doctor",),
        arguments=(
            Argument("--seconds", type=float, default=5.0, help="time of the self-test; default 5"),
        ),
        description=(
            "Report what is installed (versions, devices, extras and the command that adds each), "
            "whether it works (a self-test of five seconds, names that clash), and what would be "
            "slow here. Exits 1 if something does not work."
        ),
    ),
    "warmup": Command(
        "compile the kernels ahead of time, so that the first step does not wait",
        "agents.cli.warmup:warmup",
        ("packing warmup", "packing warmup irregular cuboid_online"),
        arguments=(Argument("presets", nargs="*", metavar="PRESET", help="presets; default: all"),),
        description=(
            "Compile the numba kernels that the presets need on a CPU, in all action modes, and "
            "build their items. Both are kept on disk, where later processes find them. This "
            "takes minutes, once and after each change of the kernels or of numba."
        ),
    ),
}
