"""Export the policies of training runs as those that the package brings.

    python benchmarks/pretrained.py NAME=RUN [NAME=RUN ...] [--played KEY=VALUE ...]

Writes ``src/agents/pretrained/NAME``, which ``packing eval checkpoint=pretrained/NAME`` plays. The
configuration of the run, its frames and versions are in its ``meta.json``; ``--played`` changes the
configuration, for weights that were learned on larger cells than those that they act on.
"""

from __future__ import annotations

import argparse

from agents.training.checkpoint import PRETRAINED, export_policy


def main() -> None:
    """Export the named runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    parser.add_argument("--played", nargs="*", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    for given in args.runs:
        name, _, run = given.partition("=")
        export_policy(run, PRETRAINED / name, args.played)
        print(f"wrote {PRETRAINED / name}")


if __name__ == "__main__":
    main()
