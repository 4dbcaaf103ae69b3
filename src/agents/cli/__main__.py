"""``python -m agents.cli``, as ``torchrun`` starts it."""

import sys

from agents.cli.main import main

sys.exit(main())
