"""The program ``packing``; ``torchrun`` starts it as ``python -m agents.cli``."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C ends it with one line, also while its modules are imported."""
    try:
        from agents.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        print("packing: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
