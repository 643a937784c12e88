"""chex: its assertions as checks of fields, and its dataclasses as pytree classes.

Needs chex (``pip install leafwise[chex]``).
"""

from leafwise.interop._chex_checks import ChexCheck, chex_check
from leafwise.interop._chex_classes import from_chex

__all__ = ["ChexCheck", "chex_check", "from_chex"]
