"""Nothing is kept alive by leafwise, and threads may construct at once."""

import gc
import weakref

import jax

from leafwise._statics import key

from .judge import P, Value


class Thing:
    pass


def test_treedef_keeps_what_it_needs() -> None:
    """A treedef alone keeps its statics, and equals that of a later equal instance."""
    structure = jax.tree.structure(P(1.0, (1, "a", Value(3))))
    gc.collect()
    assert structure == jax.tree.structure(P(2.0, (1, "a", Value(3))))
    assert jax.tree.unflatten(structure, [5.0]).s[:2] == (1, "a")


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
    made = weakref.ref(getattr(P(1.0, (1, "a")), key.KEY))
    gc.collect()
    assert getattr(P(2.0, (1, "a")), key.KEY) is made()
    for other in ((1, "b"), (True, "a"), (1.0, "a")):
        assert getattr(P(2.0, other), key.KEY) is not made()
    gc.collect()
    assert made() is None
    for value in (Thing(), "long" * 1000, (b"long" * 1000,), tuple(range(100))):
        unkept = weakref.ref(getattr(P(1.0, (value,)), key.KEY))
        gc.collect()
        assert unkept() is None
