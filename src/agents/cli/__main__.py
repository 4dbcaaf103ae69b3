"""``python -m agents.cli``, as ``torchrun`` starts it."""

import sys

from agents.cli.main.main import main

sys.exit(main())
