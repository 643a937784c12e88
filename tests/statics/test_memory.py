"""What leafwise keeps alive: the latest key of plain values, and no instance."""

import gc
import weakref

from .judge import P


class Thing:
    pass


def test_instances_can_be_weakly_referenced() -> None:
    """A weak reference to an instance dies with it: no cycle holds it."""
    p = P(1.0, "a")
    reference = weakref.ref(p)
    gc.disable()
    try:
        del p
        assert reference() is None
    finally:
        gc.enable()


def test_the_latest_key_of_plain_values_is_kept() -> None:
    """Instances that live for a moment find the key of the one before; older keys die."""
    made = weakref.ref(P(1.0, (1, "a")).__leafwise_key__)
    gc.collect()
    assert P(2.0, (1, "a")).__leafwise_key__ is made()
    for other in ((1, "b"), (True, "a"), (1.0, "a")):
        assert P(2.0, other).__leafwise_key__ is not made()
    gc.collect()
    assert made() is None
    for value in (Thing(), "long" * 1000, (b"long" * 1000,), tuple(range(100))):
        unkept = weakref.ref(P(1.0, (value,)).__leafwise_key__)
        gc.collect()
        assert unkept() is None
