"""Export policies of training runs as the pretrained policies of the package.

    python benchmarks/pretrained.py NAME=RUN [NAME=RUN ...] [--played KEY=VALUE ...]

Writes ``src/agents/pretrained/NAME``, which ``packing eval checkpoint=pretrained/NAME`` plays. Its
``meta.json`` holds the run's configuration, frames and versions. ``--played`` changes the
configuration, for weights that are played on smaller cells than those of training.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from agents.training import checkpoint


def export_policy(run: str | Path, target: Path, changes: Sequence[str] = ()) -> None:
    """Write only the policy of a run's newest checkpoint; it can be played but not resumed.

    ``changes`` are options that replace the run's, such as ``env.cell=0.005``.
    """
    # The options are checked against the run's own configuration.
    trained = checkpoint.load(run)
    played = OmegaConf.create({**trained.meta["config"], "run_dir": None})
    OmegaConf.set_struct(played, True)  # an unknown key raises
    played.merge_with_dotlist(list(changes))
    config = OmegaConf.to_container(played)
    meta = {**trained.meta, "config": config, checkpoint.POLICY_ONLY: True}
    checkpoint.write(target, {"agent": {"policy": trained.state["agent"]["policy"]}}, meta)


def main() -> None:
    """Export the named runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    parser.add_argument("--played", nargs="*", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    for given in args.runs:
        name, _, run = given.partition("=")
        export_policy(run, checkpoint.PRETRAINED / name, args.played)
        print(f"wrote {checkpoint.PRETRAINED / name}")


if __name__ == "__main__":
    main()
