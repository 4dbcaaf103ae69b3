"""The subcommands that display something: ``play``, ``render`` and ``items``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from omegaconf import DictConfig
from rich.table import Column
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.cli.eval import from_run, own_policy
from agents.config import build
from agents.config.folders import ConfigError, as_config_errors
from agents.config.keys import Request
from agents.loggers.console import PlainConsole, number_column, plain_table
from packing_env import extras
from packing_env.core import feasibility
from packing_env.envs import PackingEnv
from packing_env.items import shapes
from packing_env.plan import Packing, load_plan, packing_of, settle

_NEEDED = {".gif": ("PIL",), ".pdf": ("matplotlib",), ".mp4": ("imageio", "imageio_ffmpeg")}
"""Optional packages that write files of these kinds."""


def play(config: DictConfig, request: Request) -> int:
    """Play one episode and print every decision."""
    # 1. Play.
    env, policy = _solo(config, request)
    console = PlainConsole()
    metres = "z" if env.params.cell >= 1.0 else "z [m]"  # boxes without a unit
    numbers = ("orien-\ntation", "x", "y", metres, "support", "reward", "filled")
    headings = number_column("step"), Column("item", no_wrap=True, max_width=24)
    table = plain_table(*headings, *map(number_column, numbers))
    rewards, filled = _episode(env, policy)
    # 2. Print a row for each decision.
    packing = packing_of(env)
    for item, reward, share in zip(packing.items, rewards, filled, strict=False):
        x, y = item.cell
        place = f"{item.orientation}", f"{x}", f"{y}", f"{item.z:.3f}", f"{item.support_ratio:.2f}"
        table.add_row(f"{item.order + 1}", item.name, *place, f"{reward:.4f}", f"{share:.3f}")
    console.print(table)
    console.say(
        f"packed {len(packing.items)} of {packing.num_items} items, "
        f"utilization {packing.utilization:.3f}, return {math.fsum(rewards):.4f}",
    )
    # 3. Draw the container after each decision.
    if config.frames is not None:
        _save_frames(Path(config.frames), packing)
        console.say(f"wrote {len(packing.items) + 1} frames to {config.frames}")
    return 0


def render(config: DictConfig, request: Request) -> int:
    """Write an episode, or a plan, as PNG, GIF, MP4, HTML, GLB, STL or PDF."""
    from packing_env import render as pictures

    out = Path(str(config.out))
    writers: dict[str, Callable[[Packing], None]] = {
        ".png": lambda p: pictures.save_png(out, pictures.image(p, size=int(config.size))),
        ".gif": lambda p: pictures.save_gif(out, p, size=int(config.size)),
        ".mp4": lambda p: pictures.save_mp4(out, p, size=int(config.size)),
        ".html": lambda p: pictures.save_html(out, p),
        ".glb": lambda p: pictures.save_glb(out, p),
        ".stl": lambda p: pictures.save_stl(out, p),
        ".pdf": lambda p: pictures.save_pdf(out, p),
    }
    if out.suffix not in writers:
        raise ConfigError(f"out={out} must end in one of {', '.join(writers)}")
    for module in _NEEDED.get(out.suffix, ()):
        extras.check(module, f"{out.suffix[1:].upper()} files")
    if config.plan is not None:
        packing = load_plan(config.plan)
    else:
        env, policy = _solo(config, request)
        _episode(env, policy)
        packing = settle(packing_of(env))
    with _written("out", out):
        out.parent.mkdir(parents=True, exist_ok=True)
        writers[out.suffix](packing)
    PlainConsole().say(
        f"wrote {out}: {len(packing.items)} items, utilization {packing.utilization:.3f}",
    )
    return 0


def _solo(config: DictConfig, request: Request) -> tuple[PackingEnv, TensorDictModuleBase]:
    trained, config = from_run(config, request)
    torch.manual_seed(int(config.seed))
    row = int(config.instance)
    changes = {"split": "test", "draw": "sequential", "num_envs": 1, "row_offset": row}
    with as_config_errors():
        env = build.build_env(config, **changes)
        policy = next(iter(own_policy(config, trained, env).values()))
    if not 0 <= row < len(env.instances):
        raise ConfigError(
            f"instance={row} does not exist; there are {len(env.instances)} held-out instances"
        )
    return env, policy


@torch.no_grad()
def _episode(env: PackingEnv, policy: TensorDictModuleBase) -> tuple[list[float], list[float]]:
    """Play to the end; return the reward and the utilization after each decision."""
    rewards, filled = [], []
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        root: TensorDictBase = env.reset()
        while not bool(root.get("done").all()):
            transition = env.step(policy(root))
            root = env.step_mdp(transition)
            rewards.append(float(transition.get(("next", "reward"))))
            filled.append(float(root.get(("metrics", "utilization"))))
    return rewards, filled


def _save_frames(folder: Path, packing: Packing) -> None:
    from packing_env import render as pictures

    with _written("frames", folder):
        folder.mkdir(parents=True, exist_ok=True)
        for count in range(len(packing.items) + 1):
            picture = pictures.image(packing.first(count))
            pictures.save_png(folder / f"{count:03d}.png", picture)


@contextmanager
def _written(key: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{key}={path} cannot be written: {error}") from error


# ---------------------------------------------------------------------- items


def items(config: DictConfig, request: Request) -> int:
    """Print the catalogue of a configuration, with its warnings."""
    with as_config_errors():
        env = build.build_env(config, num_envs=1, pool_size=64)
    # 1. Columns without information for this catalogue are left out.
    catalogue = env.catalogue
    playable = feasibility.legal_on_floor(catalogue.tensors(), env.params).any(1)
    family = {shape.name: shape.family for shape in shapes.SHAPES.values()}
    x, y, height = env.params.container
    embedded = [str(source["source"]).startswith("shapes:") for source in catalogue.sources]
    scaled = any(source["scale"] != 1 for source in catalogue.sources)
    table = plain_table(
        Column("item", overflow="fold"),
        *[Column("family", no_wrap=True)] * any(embedded),
        *[number_column("scale")] * scaled,
        *map(number_column, ("extent\n[mm]", "volume\n[cm3]", "orien-\ntations", "fits")),
        title=f"{len(catalogue)} items for {x:g} x {y:g} x {height:g} m in cells of "
        f"{env.params.cell * 1e3:g} mm",
        padding=(0, 1),
    )
    # 2. A row for each item; below the table, the warnings about its file.
    for row, name in enumerate(catalogue.names):
        sides = "x".join(f"{side * 1e3:.0f}" for side in catalogue.extent[row].tolist())
        volume = catalogue.volume[row].item() * 1e6
        table.add_row(
            name,
            *[family.get(name, "") if embedded[row] else ""] * any(embedded),
            *[f"{catalogue.sources[row]['scale']:g}"] * scaled,
            sides,
            f"{volume:.1f}" if volume < 1000 else f"{volume:,.0f}",
            f"{int(catalogue.orientation_mask[row].sum())}",
            "never" if catalogue.never_feasible[row] else "yes" if playable[row] else "not first",
        )
    console = PlainConsole()
    console.print(table)
    for row, name in enumerate(catalogue.names):
        for warning in catalogue.sources[row].get("warnings", ()):
            console.say(f"{name}: {warning}", style="yellow")
    return 0
