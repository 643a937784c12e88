"""Reasons hold facts; what to do about them is worded when it is read."""

import copy
import dataclasses
import functools
import gc
import io
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise._compare.fixes import Cause
from leafwise.types import Outcome, Reason, ReasonKind


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Plain:
    x: Any
    n: Any = dataclasses.field(metadata={"static": True})


@lw.pytree
class ByContent:
    x: Any
    f: Any = lw.static_field(by="content")


def in_x64(*args: Any) -> lw.types.Signature:
    with jax.enable_x64(True):
        return lw.signature(*args)


of_static = functools.partial(lw.signature, static_argnums=0)
of_plain = functools.partial(Plain, 1.0)

WORDED: dict[Cause, Callable[[], tuple[Any, ...]]] = {
    Cause.UNHASHABLE: lambda: (of_static((1,)), of_static([1])),
    Cause.FAILING_COMPARISON: lambda: tuple(lw.signature(of_plain(np.ones(n))) for n in (2, 2)),
    Cause.ARGUMENT: lambda: (lw.signature(1.0), lw.signature(1.0, 2.0)),
    Cause.STRUCTURE: lambda: (lw.signature(None), lw.signature(1.0)),
    Cause.STATIC: lambda: (lw.signature(of_plain(1)), lw.signature(of_plain(2))),
    Cause.SHAPE: lambda: (lw.signature(jnp.ones(1)), lw.signature(jnp.ones(2))),
    Cause.UNSOUND: lambda: (lw.signature(of_plain(1)), lw.signature(of_plain(True))),
    Cause.DTYPE: lambda: (lw.signature(1.0), lw.signature(1)),
    Cause.WEAK_TYPE: lambda: (lw.signature(1.0), lw.signature(np.float32(1))),
    Cause.CONFIG: lambda: (lw.signature(jnp.ones(1)), in_x64(jnp.ones(1))),
}
"""Two signatures, or differences, for each cause whose wording needs facts."""


def reason_of(cause: Cause) -> Reason:
    """Return a reason of a cause: one that a comparison gives, where its facts are worded."""
    if cause not in WORDED:
        return Reason("args[0]", ReasonKind.STATIC, Outcome.RETRACE, 1, 2, cause)
    found = lw.explain(*WORDED[cause]())
    (reason,) = [each for each in (*found.reasons, *found.unsound) if each.cause is cause]
    return reason


each_cause = pytest.mark.parametrize("cause", Cause)


@each_cause
def test_each_cause_is_worded(cause: Cause) -> None:
    """There are words for each, made of what the reason itself holds."""
    reason = reason_of(cause)
    change, fix = reason.advice
    assert change or fix
    assert "own code raised" not in change
    assert str(reason).endswith(f"\n  fix: {fix}" if fix else change)


@each_cause
@pytest.mark.parametrize(
    "sent",
    [
        lambda each: pickle.loads(pickle.dumps(each)),  # noqa: S301  # our own
        copy.copy,
        copy.deepcopy,
    ],
)
def test_a_reason_is_sent_as_it_is_shown(cause: Cause, sent: Callable[[Reason], Reason]) -> None:
    """Another process shows it with all texts, without the objects that these were made of."""
    reason = reason_of(cause)
    again = sent(reason)
    assert str(again) == str(reason)
    assert again.advice == reason.advice
    assert again == sent(again)
    assert hash(again) == hash(sent(again))
    assert Reason.from_json(reason.as_dict()).as_dict() == reason.as_dict()
    assert repr(reason).endswith(f"fix={str(reason.fix)!r})")


class Loud:
    """A static that counts how often its text is asked for."""

    asked: "list[Loud]" = []  # noqa: RUF012  # for all instances

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loud) and self.n == other.n

    def __hash__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        self.asked.append(self)
        return f"Loud({self.n})"


class Louder(Loud):
    """Another type, so that the reason has the text of both."""


@pytest.mark.hazard
def test_nothing_is_worded_that_nobody_reads() -> None:
    """Comparing with every earlier call asks no value for its text; reading one asks two."""
    Loud.asked.clear()
    earlier = [lw.signature(Plain(1.0, Loud(n))) for n in range(20)]
    found = lw.explain(earlier, lw.signature(Plain(1.0, Louder(30))))
    assert not Loud.asked
    (reason,) = found.reasons
    assert reason.change == "Loud(19) (Loud) -> Loud(30) (Louder)"
    assert [each.n for each in Loud.asked] == [19, 30]


@pytest.mark.hazard
def test_a_reason_keeps_what_it_shows_alone() -> None:
    """Of functions by content it keeps the parts that differ, and of arrays no data."""

    def scaled(k: Any) -> Any:
        return lambda x: x * k

    outer, array = scaled(Loud(1)), jnp.ones(3)
    calls = [ByContent(array, outer), ByContent(np.ones(3, np.int8), scaled(Loud(2)))]
    static, dtype = sorted(
        lw.explain(*map(lw.signature, calls)).reasons, key=lambda each: each.kind != "static"
    )
    gone = weakref.ref(outer), weakref.ref(array)
    del calls, outer, array
    gc.collect()
    assert [each() for each in gone] == [None, None]
    assert "(at .__closure__['k'].n)" in static.change
    assert str(dtype.fix) == "`x.x.astype(jnp.float32)` in this call"


def test_a_fix_for_a_child_that_jax_numbers() -> None:
    """The number of a child is a path, and no code: the fix calls it ``x``."""

    class Numbered:
        def __init__(self, w: Any) -> None:
            self.w = w

    jax.tree_util.register_pytree_node(
        Numbered, lambda x: ((x.w,), None), lambda _, w: Numbered(*w)
    )
    calls = [lw.signature(Numbered(jnp.ones(3, dtype))) for dtype in ("float32", "int32")]
    (dtype,) = lw.explain(*calls).reasons
    assert dtype.path == "args[0][<flat index 0>]"
    assert str(dtype.fix) == "`x.astype(jnp.float32)` in this call"


def test_a_shape_of_another_rank_has_no_fix() -> None:
    """Nothing is padded to it."""
    (shape,) = lw.explain(lw.signature(jnp.ones(2)), lw.signature(jnp.ones((10, 2)))).reasons
    assert (shape.change, str(shape.fix)) == ("(2,) -> (10, 2)", "")


def test_an_entry_of_aux_data() -> None:
    """It is named, with both values."""

    @dataclasses.dataclass(frozen=True)
    class Options:
        n: int

    class Sampler:
        def __init__(self, aux: Any) -> None:
            self.aux = aux

    jax.tree_util.register_pytree_node(Sampler, lambda x: ((), x.aux), lambda aux, _: Sampler(aux))
    for pair, path in (([{"n": 3}, {"n": 4}], "['n']"), ([Options(3), Options(4)], ".n")):
        (static,) = lw.explain(*[lw.signature(Sampler(each)) for each in pair]).reasons
        assert static.change == f"3 -> 4 (at {path} of its aux_data)"


def test_explanations_under_rich() -> None:
    """They are their text, markup and all."""
    console = pytest.importorskip("rich.console")
    found = lw.explain(lw.signature({"[b]x": 1.0}), lw.signature({"[b]x": 1}))
    out = io.StringIO()
    console.Console(file=out, width=100).print(found)
    assert out.getvalue().strip() == str(found)
