"""What a user reads when a static value is refused."""

import re
import textwrap
import types
from typing import Any

import attrs
import msgspec
import numpy as np
import pydantic
import pytest

import leafwise as lw

from .test_validation import EqWithoutHash, Open, RaisingHash

pytestmark = pytest.mark.message


@lw.pytree
class Params:
    x: Any
    layers: lw.Static[Any] = ()
    act: lw.Static[Any] = "relu"


class BadRepr:
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError


DECLARED = "`layers: Any = lw.static_field(default=(), freeze=True)`"


def message(*values: Any) -> str:
    """Return the message for these statics."""
    with pytest.raises(lw.errors.StaticFieldError) as error:
        Params(1.0, *values)
    return error.value.message


def test_list_in_full() -> None:
    """The whole message for a list: place, reason, value and type, two repairs."""
    assert (
        message([64, 64])
        == textwrap.dedent("""\
        Params.layers: a list can change in place and has no hash
          got: [64, 64] (list)
          fix: pass a tuple: `(64, 64)`,
               or let the field convert it: """)
        + DECLARED
    )


def test_array_in_full() -> None:
    """The whole message for an array: dtype and shape, and the ways out."""
    assert message(np.ones((3, 4), np.float32)) == textwrap.dedent(
        """\
        Params.layers: an array has no hash
          got: float32[3,4] (numpy.ndarray)
          fix: make the field dynamic: `layers: jax.Array`,
               or wrap it, as a constant table: `layers=lw.StaticArray(value)`,
               or let the field convert it: """
        f"{DECLARED}"
    )


def test_a_number_in_an_array() -> None:
    """It is wanted as a number, of the kind of its dtype."""
    assert "pass a Python number: `layers=int(layers)`" in message(np.array(3))
    assert "a Python number" not in message(np.ones(1))


@lw.pytree
class Numbers:
    n: lw.Static[int] = 0
    rate: "lw.Static[float]" = 0.0
    k: lw.Static[int | None] = None


def test_the_number_is_that_of_the_annotation() -> None:
    """A fix does not make a float of an int; it is applied, and so is that of an argument."""
    step = lw.jit(lambda x, n: x * n, static_argnames="n")

    @lw.jit
    def ours(x: Any, n: lw.Static[int]) -> Any:
        return step(x, n=n)

    for call, value in ((lambda n: Numbers(n=n).n, 3.0), (lambda n: ours(1, n), 3.0)):
        with pytest.raises(lw.errors.StaticFieldError, match=r"`n=int\(n\)`"):
            call(np.array(value))
        assert call(int(np.array(value))) == 3
    for values, code in (({"rate": np.array(1)}, "float(rate)"), ({"k": np.array(1.5)}, "int(k)")):
        with pytest.raises(lw.errors.StaticFieldError, match=re.escape(code)):
            Numbers(**values)


def test_a_field_that_converts_says_what_it_takes() -> None:
    """Type checkers would refuse the list for a tuple."""

    @lw.pytree
    class P:
        sizes: lw.Static[tuple[int, ...]] = ()
        names: lw.Static[dict[str, int] | None] = None

    for values, code in (
        ({"sizes": [1]}, "`sizes: Sequence[int] = lw.static_field(default=(), freeze=True)`"),
        ({"names": {}}, "`names: Mapping[str, int] | None = lw.static_field(default=None, "),
    ):
        with pytest.raises(lw.errors.StaticFieldError, match=re.escape(code)):
            P(**values)  # type: ignore[arg-type]


def test_a_field_that_converts_keeps_its_factory() -> None:
    """The declaration has the factory of the field, and accepts what the factory returns."""

    @lw.pytree
    class P:
        sizes: lw.Static[list[int]] = lw.field(default_factory=lambda: [1, 2])
        more: list[int] = lw.static_field(default_factory=lambda: [3])

    for values, text in (({"more": ()}, "Q(sizes=(1, 2))"), ({"sizes": ()}, "Q(more=(3,))")):
        with pytest.raises(lw.errors.StaticFieldError) as caught:
            P(**values)  # type: ignore[arg-type]
        (code,) = re.findall(r"convert it: `(.*)`", str(caught.value))
        code = f"@lw.pytree\nclass Q:\n    {code}\nassert str(Q()) == {text!r}"
        exec(code, globals() | {"Sequence": list})  # noqa: S102  # the point


REPAIRS: dict[str, tuple[Any, str, str]] = {
    "list": ([1, [2]], "pass a tuple", "(1, (2,))"),
    "dict": ({"k": [1]}, "pass a FrozenMapping", "lw.FrozenMapping({'k': (1,)})"),
    "set": ({1}, "pass a frozenset", "frozenset({1})"),
    "bytearray": (bytearray(b"a"), "pass a bytes", "b'a'"),
    "nested dict": ({"k": {}}, "FrozenMapping", "lw.FrozenMapping({'k': lw.FrozenMapping({})})"),
}


@pytest.mark.parametrize("name", REPAIRS)
def test_repaired_code(name: str) -> None:
    """The message shows code that makes the immutable equivalent, and it is accepted."""
    given, words, code = REPAIRS[name]
    text = message(given)
    assert words in text
    assert f"`{code}`" in text
    assert DECLARED in text
    value = eval(code, {"lw": lw})  # noqa: S307  # the point
    assert Params(1.0, value).layers == value == lw.freeze(given)


WORDS: dict[str, tuple[Any, list[str]]] = {
    "open dataclass": (Open(), ["not frozen", "@dataclass(frozen=True)", "class Open: ..."]),
    "open attrs class": (
        attrs.make_class("OpenAttrs", [])(),
        ["@attrs.frozen", "class OpenAttrs: ..."],
    ),
    "open model": (
        pydantic.create_model("OpenModel")(),
        ["class OpenModel(pydantic.BaseModel, frozen=True): ..."],
    ),
    "open struct": (
        msgspec.defstruct("OpenStruct", [])(),
        ["class OpenStruct(msgspec.Struct, frozen=True): ..."],
    ),
    "namespace": (types.SimpleNamespace(a=1), ["SimpleNamespace", "tuple", "frozen dataclass"]),
    "eq without hash": (
        EqWithoutHash(),
        ["EqWithoutHash defines __eq__", "give EqWithoutHash a __hash__"],
    ),
    "hash raises": (
        RaisingHash(),
        ["its __hash__ raises RuntimeError: no hash today", "make RaisingHash.__hash__"],
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_words(name: str) -> None:
    """Reason and fix of every other row."""
    value, words = WORDS[name]
    text = message(value)
    for word in words:
        assert word in text
    assert text.startswith("Params.layers")
    assert "\n  got: " in text
    assert "\n  fix: " in text


def test_value_and_type_are_shown_short() -> None:
    """A long repr is cut to a line, a module is named, and a repr that raises is survived."""
    text = message(list(range(1000)))
    assert max(len(line) for line in text.splitlines()) < 160
    assert "BadRepr" in message(BadRepr())
    assert "whose repr raises RuntimeError" in message(BadRepr())
