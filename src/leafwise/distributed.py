"""Programs that run in many processes: what must be the same in all of them."""

from leafwise._jit.everywhere import assert_same

__all__ = ["assert_same"]
