"""Export the policies of training runs as those that the package brings.

    python benchmarks/pretrained.py NAME=RUN [NAME=RUN ...] [--played KEY=VALUE ...]

Writes ``src/agents/pretrained/NAME``, which ``packing eval checkpoint=pretrained/NAME`` plays. The
configuration of the run, its frames and versions are in its ``meta.json``; ``--played`` changes the
configuration, for weights that were learned on larger cells than those that they act on.
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
