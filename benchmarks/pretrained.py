"""Export the policies of training runs as those that the package brings.

    python benchmarks/pretrained.py NAME=RUN [NAME=RUN ...]

Writes ``src/agents/pretrained/NAME``, which ``packing eval checkpoint=pretrained/NAME`` plays. The
configuration of the run, its frames and versions are in its ``meta.json``.
"""

from __future__ import annotations

import argparse

from agents.training.checkpoint import PRETRAINED, export_policy


def main() -> None:
    """Export the named runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    for given in parser.parse_args().runs:
        name, _, run = given.partition("=")
        export_policy(run, PRETRAINED / name)
        print(f"wrote {PRETRAINED / name}")


if __name__ == "__main__":
    main()
