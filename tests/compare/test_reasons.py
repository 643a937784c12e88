"""Reasons hold facts, worded when they are read; their fixes are code that runs."""

import gc
import io
import itertools
import json
import re
import weakref
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.specimens import Plain

import leafwise as lw


@lw.pytree
class ByContent:
    x: Any
    f: Any = lw.static_field(compare_by="content")


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
    found = lw.signature(Plain(1.0, Louder(30))).explain(earlier)
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
    one, two = map(lw.signature, calls)
    static, dtype = sorted(two.explain(one).reasons, key=lambda each: each.kind != "static")
    gone = weakref.ref(outer), weakref.ref(array)
    del calls, one, two, outer, array
    gc.collect()
    assert [each() for each in gone] == [None, None]
    assert "(at .__closure__['k'].n)" in static.change
    assert str(dtype.fix) == "`x.x.astype(jnp.float32)` in this call"


def test_explanations_under_rich() -> None:
    """They are their text, markup and all."""
    console = pytest.importorskip("rich.console")
    found = lw.signature({"[b]x": 1}).explain(lw.signature({"[b]x": 1.0}))
    out = io.StringIO()
    console.Console(file=out, width=100).print(found)
    assert out.getvalue().strip() == str(found)


@pytest.mark.parametrize("wrap", [str, str.encode, lambda text: (1, "a", text)])
def test_long_values_that_differ_at_the_end(wrap: Any) -> None:
    """Both sides show the difference, in an explanation, a diff and a changed static alike."""
    one, other = (wrap("x" * 10_000 + end) for end in "ab")
    by_static = lw.signature(1.0, other, static_argnums=1).explain(
        lw.signature(1.0, one, static_argnums=1)
    )
    by_field = lw.signature(Plain(1.0, other)).explain(lw.signature(Plain(1.0, one)))
    for reason in (*by_static.reasons, *by_field.reasons, *lw.diff(Plain(1, one), Plain(1, other))):
        before, after = reason.words
        assert before == after.replace("b", "a") != after
        assert len(after) < 100
        assert "xa" in reason.change
        assert "xb" in reason.change


VALUES: dict[str, Any] = {
    "Python int": 0,
    "Python float": 0.5,
    "bool": True,
    "int32": jnp.int32(3),
    "float32": jnp.float32(0.5),
    "float16": jnp.float16(0.5),
    "weak float": jnp.array(0.5),
    "weak int": jnp.array(2),
    "complex": jnp.complex64(1j),
    "uint8": np.uint8(3),
    "int32[2]": jnp.ones(2, jnp.int32),
    "float32[2]": jnp.ones(2),
    "bfloat16[2]": jnp.ones(2, jnp.bfloat16),
    "weak float[2]": jnp.full(2, 0.5),
    "bool[2]": jnp.ones(2, bool),
}
PAIRS = [pair for pair in itertools.permutations(VALUES, 2) if len({"[" in it for it in pair}) == 1]


def fixed(code: str, x: Any) -> Any:
    """Run the code of a fix on the value that it is for."""
    return eval(code, {"jnp": jnp, "x": x, "__builtins__": {"float": float, "int": int}})  # noqa: S307


def test_of_dtypes_and_weak_types() -> None:
    """The code of the fix makes one program of two, and no value narrower than it was."""
    for one, other in PAIRS:
        before, after = VALUES[one], VALUES[other]
        found = lw.signature(after).explain(lw.signature(before))
        if found.outcome is not lw.types.Outcome.RETRACE:
            continue
        (reason,) = found.reasons
        changed = {"earlier": before, "this": after}
        for code, call in re.findall(r"`([^`]+)` in (?:the )?(earlier|this) call", str(reason.fix)):
            made = fixed(code, changed[call])
            common = jnp.result_type(before, after)  # a Python number gives way
            assert jnp.result_type(made) == common, (one, other, str(reason.fix))
            changed[call] = made
        first, second = map(lw.signature, changed.values())
        same = second.explain(first)
        assert same.outcome.severity < lw.types.Outcome.RECOMPILE.severity, (
            one,
            other,
            str(reason.fix),
        )


def test_leaves_that_differ_alike_are_one_line() -> None:
    """Though each has code of its own, leaves that need the same fix are one reason."""
    before, after = (lw.signature([kind(n) for n in range(5)]) for kind in (float, jnp.float32))
    found = after.explain(before)
    assert len(found.reasons) == 5
    assert len(str(found).splitlines()) == 3


def state_class(module: str) -> Any:
    namespace = {"__annotations__": {"w": Any}, "__module__": module, "__qualname__": "State"}
    return lw.pytree(type("State", (), namespace))


@pytest.fixture(scope="module")
def states() -> tuple[Any, Any]:
    """Instances of two classes of one name."""
    return state_class("envs.acrobot")(1.0), state_class("envs.pendulum")(1.0)


def test_classes_of_one_name(states: tuple[Any, Any]) -> None:
    """Two classes of one name are named with their modules."""
    before, after = map(lw.signature, states)
    explanation = after.explain(before)
    (reason,) = explanation.reasons
    for text in (str(reason), json.dumps(explanation.as_dict())):
        assert "envs.acrobot.State" in text
        assert "envs.pendulum.State" in text
    (difference,) = lw.diff(*states)
    assert "envs.acrobot.State -> envs.pendulum.State" in str(difference)


def test_numbers_of_operations_outside_jit() -> None:
    """JAX makes numbers with a dtype of Python's: their fix is code, too."""
    literals = pytest.importorskip("jax._src.literals", reason="a newer JAX has them")
    numbers = (literals.TypedInt(0, np.dtype("int32")), literals.TypedFloat(0.5, np.dtype("f4")))
    before, after = map(lw.signature, numbers)
    (reason,) = after.explain(before).reasons
    assert set(reason.fix.code) == {"jnp.float32"}


def test_by_position_and_by_keyword() -> None:
    """An argument that is given in two ways is named once."""
    step = lw.jit(lambda x, lr: x * lr)
    step(1.0, 0.1)
    (reason,) = step.explain(1.0, lr=0.1).reasons
    assert (reason.path, reason.kind) == ("lr", lw.types.ReasonKind.ARGUMENTS)
    assert reason.words == ("by position", "by keyword")
