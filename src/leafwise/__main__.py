"""``python -m leafwise``, which is the command ``leafwise``."""

import sys

from leafwise_cli import main

sys.exit(main())
