"""What annotations decide: static marks, and fields that can only be one or the other."""

import sys
import types
from typing import Annotated, Any, Final, Literal, NewType, Optional, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
import typing_extensions
from tests.property.zoo import Color, Level

import leafwise as lw

Name = NewType("Name", str)
T = TypeVar("T")


def make(annotation: Any, declared: Any = None) -> type:
    """Return a class `P` with one field `a` of this annotation."""
    body = {"__annotations__": {"a": annotation}}
    return lw.pytree(type("P", (), body | ({"a": declared} if declared is not None else {})))


def alias(value: Any, *parameters: Any) -> Any:
    """Return what a ``type`` statement makes, in Python 3.11 too."""
    return typing_extensions.TypeAliasType("Alias", value, type_params=parameters)


TEXT = {
    "str": str,
    "Enum": Color,
    "IntEnum": Level,
    "np.dtype": np.dtype,
    "DTypeLike": jax.typing.DTypeLike,
    "Optional": Optional[str],  # noqa: UP045  # this spelling
    "Enum | None": Color | None,
    "dtype | None": np.dtype | None,
    "Literal": Literal["relu", "tanh"],
    "NewType": Name,
    "Final": Final[str],
    "string": "str",
    "string | None": "str | None",
    "alias": alias(tuple[T, ...], T)[alias(str)],
}


@pytest.mark.parametrize("name", TEXT)
def test_text_must_be_static(name: str) -> None:
    """A field of text, enum or dtype is an error that names the fix, unless it is static."""
    annotation = TEXT[name]
    with pytest.raises(lw.errors.DefinitionError, match=r"P\.a: JAX cannot trace a") as error:
        make(annotation)
    assert "lw.Static[" in str(error.value)
    assert "lw.static_field()" in str(error.value)
    make(annotation, lw.static_field())
    if name != "Final":  # may stand outermost only
        text = f"lw.Static[{annotation}]"
        make(text if isinstance(annotation, str) else lw.Static[annotation])


@pytest.mark.parametrize("kind", [Any, int, float, object, str | jax.Array, Literal[1, 2], type])
def test_other_types_say_nothing(kind: Any) -> None:
    """Any other annotation silently stays a child."""
    assert jax.tree.leaves(make(kind)(1)) == [1]


ARRAYS = {
    "jax": jax.Array,
    "numpy": np.ndarray,
    "NDArray": npt.NDArray[np.float32],
    "| None": jax.Array | None,
    "Optional": Optional[jax.Array],  # noqa: UP045  # this spelling
    "either": jax.Array | np.ndarray,
    "Annotated": Annotated[jax.Array, "weights"],
    "tuple": tuple[jax.Array, ...],
    "string": "jax.Array",
    "alias": alias(tuple[T, ...], T)[alias(jax.Array)],
}


@pytest.mark.parametrize("name", ARRAYS)
def test_array_must_be_dynamic(name: str) -> None:
    """A static field annotated as an array is an error that names both ways out."""
    kind = ARRAYS[name]
    with pytest.raises(
        lw.errors.DefinitionError, match=r"P\.a: a static field cannot hold an array"
    ) as e:
        make(kind, lw.static_field())
    assert "make it dynamic" in str(e.value)
    assert "lw.StaticArray" in str(e.value)
    with pytest.raises(lw.errors.DefinitionError, match="cannot hold an array"):
        make(lw.Static[kind] if not isinstance(kind, str) else f"lw.Static[{kind}]")
    assert len(jax.tree.leaves(make(kind)(jnp.ones(3)))) == 1


def test_array_annotation_with_freeze() -> None:
    """With `freeze=True` an array annotation is fine: the array becomes a `StaticArray`."""
    made = make(jax.Array, lw.static_field(freeze=True))(jnp.ones(2))
    assert isinstance(made.a, lw.StaticArray)  # type: ignore[attr-defined]


BURIED = {
    "Optional": (Optional[lw.Static[str]], "lw.Static[str | None]"),  # noqa: UP045
    "tuple": (tuple[lw.Static[int], ...], "lw.Static[tuple[int, ...]]"),
    "table": (Optional[lw.Static[lw.StaticArray]], "lw.Static[lw.StaticArray | None]"),  # noqa: UP045
    "string": ("Optional[lw.Static[str]]", "lw.Static[Optional[str]]"),
    "string |": ("lw.Static[str] | None", "lw.Static[str | None]"),
    "string deep": (
        "Optional[lw.Static[tuple[int, int]]]",
        "lw.Static[Optional[tuple[int, int]]]",
    ),
    "of an alias": (Optional[alias(lw.Static[str])], "lw.Static[str | None]"),  # noqa: UP045
    "in an alias": (alias(Optional[lw.Static[str]]), "lw.Static[str | None]"),  # noqa: UP045
    "in two aliases": (
        alias(tuple[T, ...], T)[alias(tuple[T, ...], T)[lw.Static[int]]],
        "lw.Static[tuple[tuple[int, ...], ...]]",
    ),
    "in a static": (lw.Static[list[alias(lw.Static[int])]], "lw.Static[list[int]]"),
}


@pytest.mark.parametrize("name", BURIED)
def test_static_inside_another_type(name: str) -> None:
    """`Optional[Static[...]]` is refused with the right spelling, which works, also by an alias."""
    annotation, fix = BURIED[name]
    with pytest.raises(
        lw.errors.DefinitionError, match=r"P\.a: Static inside another type"
    ) as error:
        make(annotation)
    assert f"`a: {fix}`" in str(error.value)
    cls = make(fix)
    assert jax.tree.leaves(cls(None)) == []


U = TypeVar("U")
Twice = alias(alias(lw.Static[T], T)[T], T)
STATIC_ALIASES = {
    "alias": alias(lw.Static[int]),
    "generic": alias(lw.Static[T], T)[int],
    "of a generic alias": Twice[int],
    "in Annotated": Annotated[alias(lw.Static[int]), "a note"],
    "Final": Final[lw.Static[int]],
    "in a NewType": NewType("Count", lw.Static[int]),
    "argument": alias(T, T)[lw.Static[int]],
    "arguments in another order": alias(lw.Static[dict[U, T]], T, U)[int, str],
    "union inside": alias(lw.Static[int | None]),
}


@pytest.mark.hazard
@pytest.mark.parametrize("name", STATIC_ALIASES)
def test_alias_of_static(name: str) -> None:
    """A name for `Static[...]` declares a static field, as the annotation written out does."""
    made = make(STATIC_ALIASES[name])
    assert jax.tree.leaves(made(1)) == []
    assert jax.tree.structure(made(1)) != jax.tree.structure(made(2))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type statements came with Python 3.12")
@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_type_statement(future: str) -> None:
    """Aliases of ``type`` statements are followed, in annotations that are strings as well."""
    source = f"""{future}
import jax
import leafwise as lw

type Count = lw.Static[int]
type S[T] = lw.Static[T]
type Again = S[int]
type Reordered[K, V] = lw.Static[dict[V, K]]
type Many[*Ts] = lw.Static[tuple[*Ts]]
type Call[**P] = lw.Static[P]
type Nested = int | list[Nested]
type Late = lw.Static[Later]
type Broken = Missing
Later = int

@lw.pytree
class P:
    x: float
    nested: Nested = 0.0
    a: Count = 1
    b: S[str] = "b"
    c: Again = 1
    d: Reordered[int, str] = None
    e: Many[int, str] = (1, "a")
    f: Call[int, str] = 2
    g: Late = 3
    h: Broken = 4.0
    i: Broken = lw.static_field(default=5)

def local():
    type Here[T] = S[T]

    @lw.pytree
    class Q:
        x: float
        a: Here[str] = "a"

    return Q
"""
    module = types.ModuleType("type_statements")
    sys.modules["type_statements"] = module
    try:
        exec(compile(source, "<type statements>", "exec"), vars(module))  # noqa: S102  # syntax
        assert jax.tree.leaves(module.P(1.0)) == [1.0, 0.0, 4.0]
        assert jax.tree.leaves(module.local()(1.0)) == [1.0]
    finally:
        del sys.modules["type_statements"]
