"""Draw the figures of the concepts page: ``python docs/_site/figures.py`` writes docs/figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

import packing_env as pe

FOLDER = Path(__file__).resolve().parents[1] / "figures"
INK, ITEM, LEGAL, FAINT = "#30363d", "#d9822b", "#2f7d5b", "#c9ced6"


def drop_height() -> Figure:
    """Draw one row of cells: an item comes to rest where the first of its cells touches."""
    heights, bottom = np.array([1, 3, 2, 2, 1, 1, 4, 2]), np.array([2, 0, 1])
    top = np.array([4, 4, 3])
    figure = Figure(figsize=(8.4, 3.1), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    x = 3
    z = (heights[x : x + 3] - bottom).max()
    cells = np.arange(len(heights))
    left.bar(cells, heights, 1.0, align="edge", color=FAINT, edgecolor="white")
    left.bar(cells[x : x + 3], top - bottom, 1.0, z + bottom, align="edge", color=ITEM, alpha=0.85)
    left.hlines(z, x - 0.9, x, INK, ":")
    left.annotate(f"z = {z}", (x - 0.9, z), (x - 2.4, z + 1.3), color=INK, fontsize=9,
                  arrowprops={"arrowstyle": "->", "color": INK})  # fmt: skip
    left.set(title=f"at x = {x}: z = max(heightmap - bottom)", xlabel="x, cells", ylabel="height")
    every = [(heights[i : i + 3] - bottom).max() for i in range(len(heights) - 2)]
    right.bar(range(len(every)), every, 0.8, color=[ITEM if i == x else FAINT for i in range(6)])
    right.set(title="drop_height: z at every x", xlabel="x, cells")
    return figure


def partly_packed(**options: object) -> tuple[pe.PackingEnv, object]:
    """Return an environment after four random decisions, and what it shows."""
    env = pe.make_env("irregular", num_envs=1, seed=3, resolution=24, pool_size=32, **options)
    torch.manual_seed(1)
    root = env.reset()
    for _ in range(4):
        _, root = env.step_and_maybe_reset(env.rand_action(root))
    return env, root


def masks() -> Figure:
    """Draw the observation behind one decision."""
    env, root = partly_packed()
    heights = root["observation", "heightmap"][0].numpy()
    rest = root["observation", "drop_height"][0, 0].numpy()
    legal = root["action_mask"][0].view(-1, *env.params.lattice).numpy()
    chosen = int(legal.sum((1, 2)).argmax())
    figure = Figure(figsize=(9.2, 3), layout="constrained")
    panels = figure.subplots(1, 3)
    shown = (
        ("heightmap, share of H", heights, "viridis"),
        ("drop_height (1: not legal)", rest[chosen], "viridis"),
        ("action_mask: legal placements", legal[chosen], "Greens"),
    )
    for axes, (title, values, colours) in zip(panels, shown, strict=True):
        drawn = axes.imshow(values.T, origin="lower", vmin=0, vmax=1, cmap=colours)
        axes.set_title(title, fontsize=10)
        axes.set(xlabel="x, cells")
    figure.colorbar(drawn, ax=panels[2], shrink=0.7)
    return figure


def action_modes() -> Figure:
    """Draw how five modes say the same placement."""
    env, root = partly_packed()
    legal = root["action_mask"][0].view(-1, *env.params.lattice).numpy()
    orientation = int(legal.sum((1, 2)).argmax())
    mask = legal[orientation]
    rest = root["observation", "drop_height"][0, 0, orientation].numpy()
    places = np.argwhere(mask)
    lowest = places[np.argsort(rest[mask], kind="stable")]
    x, y = lowest[0]
    figure = Figure(figsize=(12, 3.1))
    panels = figure.subplots(1, 5)
    figure.subplots_adjust(0.01, 0.02, 0.99, 0.84, wspace=0.06)
    for axes in panels:
        axes.imshow(mask.T, origin="lower", vmin=0, vmax=2, cmap="Greens")
        axes.set(xticks=[], yticks=[])
    said = (
        "placement\none index of all places",
        "candidate\none of K proposals",
        "multi_head\norientation, x, y in turn",
        "hierarchical\nmanager: item, worker: place",
        "continuous\na point, snapped",
    )
    for axes, text in zip(panels, said, strict=True):
        axes.set_title(text, fontsize=9, pad=8)
        axes.plot(x, y, "o", color=ITEM)
    spread = lowest[:: max(1, len(lowest) // 9)][:9]
    panels[1].plot(*spread.T, "s", color=LEGAL, markersize=4, zorder=0)
    panels[2].axvline(x, color=ITEM, alpha=0.5)
    panels[2].axhline(y, color=ITEM, linestyle=":", alpha=0.8)
    asked = np.array([x + 3.4, y + 2.7])
    panels[4].annotate("", (x, y), asked, arrowprops={"arrowstyle": "->", "color": INK})
    panels[4].plot(*asked, "x", color=INK)
    return figure


def afterstates() -> Figure:
    """Draw what three placements of one item leave."""
    env, root = partly_packed(orientations="yaw")
    state = env.get_state()
    mask = root["action_mask"][0]
    legal = mask.nonzero().flatten()
    rest = root["observation", "drop_height"].flatten()[legal]
    order = legal[rest.argsort(stable=True)]
    chosen = [int(order[0]), int(order[len(order) // 2]), int(order[-1])]
    before = root["observation", "heightmap"][0].numpy()
    figure = Figure(figsize=(9.6, 2.9), layout="constrained")
    panels = figure.subplots(1, 4)
    panels[0].imshow(before.T, origin="lower", vmin=0, vmax=0.8)
    panels[0].set_title("heightmap s", fontsize=10)
    for axes, action, name in zip(panels[1:], chosen, "abc", strict=True):
        started = env.reset(state.clone(), set_state=True)
        following = env.step(started.set("action", torch.tensor([action])))["next"]
        after = following["observation", "heightmap"][0].numpy()
        axes.imshow(after.T, origin="lower", vmin=0, vmax=0.8)
        changed = np.where(after > before, 1.0, np.nan)
        axes.contour(np.nan_to_num(changed).T, [0.5], colors=ITEM, linewidths=1.2)
        axes.set_title(f"afterstate {name}: r + V({name})", fontsize=10)
    for axes in panels:
        axes.set(xticks=[], yticks=[])
    return figure


def main() -> None:
    """Write all figures."""
    FOLDER.mkdir(exist_ok=True)
    for draw in (drop_height, masks, action_modes, afterstates):
        draw().savefig(FOLDER / f"{draw.__name__}.png", dpi=100)
        print(FOLDER / f"{draw.__name__}.png")  # noqa: T201


if __name__ == "__main__":
    main()
