"""How treescope shows an instance, with its dynamic and static fields.

Needs treescope (``pip install leafwise[treescope]``), which calls this when it shows one.
"""

from leafwise.interop._extra import import_extra

import_extra("treescope.rendering_parts", "treescope")

from leafwise._classes.treescope import render  # noqa: E402  # which needs it

__all__ = ["render"]
