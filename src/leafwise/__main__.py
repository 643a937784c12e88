"""``python -m leafwise``, the same as the command ``leafwise``."""

import sys

from leafwise.cli.main import main

sys.exit(main())
