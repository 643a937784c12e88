"""``python -m leafwise`` runs the command ``leafwise``."""

import sys

from leafwise_cli import main

sys.exit(main())
