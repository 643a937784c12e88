"""Types checked at run time: jaxtyping with beartype, at construction only."""

# ruff: noqa: F722  # shapes are no forward references

import importlib
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import beartype
import jax
import jax.numpy as jnp
import pytest
import typeguard
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Array, Float, TypeCheckError, install_import_hook, jaxtyped

import leafwise as lw

T = TypeVar("T")


def point(checker: Any = beartype.beartype, **options: Any) -> Any:
    """Return a class with two arrays of one length, and a static."""

    @jaxtyped(typechecker=checker)
    @lw.pytree(**options)
    class Point:
        x: Float[Array, "n d"]
        y: Float[Array, " n"]
        act: lw.Static[str] = "relu"
        depth: int = lw.static_field(default=1)

    return Point


X, Y = jnp.ones((2, 3)), jnp.ones(2)

WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((jnp.ones(2), Y), {}, "x"),
    ((X, jnp.ones(3)), {}, "y"),
    ((X, Y, 3), {}, "act"),
    ((X, Y), {"depth": "a"}, "depth"),
]


@pytest.mark.works("jaxtyping", "`@jaxtyped` above `@lw.pytree` with beartype: fields are checked")
@pytest.mark.parametrize("options", [{}, {"slots": True}, {"many_statics": True}], ids=str)
def test_checked_at_construction(options: dict[str, bool]) -> None:
    """Shapes, dtypes and statics are checked, fields with each other; class and field are named."""
    cls = point(**options)
    assert cls(X, Y).act == "relu"
    for arguments, named, field in WRONG:
        with pytest.raises(TypeCheckError) as raised:
            cls(*arguments, **named)
        assert f"parameter '{field}'" in str(raised.value)
        assert "Point.__init__" in str(raised.value)


@pytest.mark.works(
    "jaxtyping", "no check when JAX rebuilds: `tree.map`, `vmap`, `eval_shape`, axes"
)
def test_not_checked_when_rebuilt() -> None:
    """JAX may put anything into the fields: other shapes, tracers, `object()`, None, axes."""
    calls: list[None] = []

    def counting(function: Any) -> Any:
        inner = beartype.beartype(function)
        return lambda *args, **kwargs: (calls.append(None), inner(*args, **kwargs))[1]

    cls = point(counting)
    made = cls(X, Y)
    assert calls
    calls.clear()
    for fill in (lambda _: object(), lambda _: None, lambda x: x[..., None]):
        assert type(jax.tree.map(fill, made)) is cls
    assert jax.vmap(lambda p: p.x)(jax.tree.map(lambda x: x[None], made)).shape == (1, 2, 3)
    assert jax.eval_shape(lambda p: p, made).x.shape == (2, 3)
    jax.jit(lambda p: p)(made)
    assert not calls


@pytest.mark.works("jaxtyping", "shapes are checked under `jit` and `vmap`, on tracers")
def test_checked_while_tracing() -> None:
    """An instance that is made inside a traced function is checked, by its traced shapes."""
    cls = point()
    made = jax.jit(lambda x: cls(x, x[:, 0]))(X)
    assert type(made) is cls
    with pytest.raises(TypeCheckError, match="parameter 'y'"):
        jax.jit(lambda x: cls(x, x[0]))(X)
    with pytest.raises(TypeCheckError, match="parameter 'y'"):
        jax.vmap(lambda x: cls(x, x[0]))(jnp.ones((5, 2, 3)))


@pytest.mark.works("jaxtyping", "`lw.field(converter=...)`: the converter's own type is checked")
def test_converters() -> None:
    """A converter is given what the caller gave; a check sees what it returns, and the axes."""

    def as_array(x: list[float] | tuple[float, ...]) -> jax.Array:
        return jnp.asarray(x)

    def fits(x: Any) -> bool:
        return isinstance(x, Float[Array, " n"])

    @jaxtyped(typechecker=beartype.beartype)
    @lw.pytree
    class Converted:
        x: Float[Array, " n"]
        y: Float[Array, " n"] = lw.field(converter=jnp.asarray, validator=fits)
        z: Float[Array, " n"] = lw.field(converter=as_array, default=())

    assert Converted(Y, [1.0, 2.0]).y.shape == (2,)  # type: ignore[arg-type]
    with pytest.raises(
        lw.errors.FieldCheckError, match=r"Converted\.y: its validator fits refused"
    ):
        Converted(Y, [1.0, 2.0, 3.0])  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError, match="parameter 'z'"):
        Converted(Y, Y, {1.0})  # type: ignore[arg-type]


@pytest.mark.works(
    "jaxtyping",
    "`lw.replace` with a constructor written by hand",
    cannot="its arguments are not the fields, so it does not run; use a `validator=`",
)
def test_replace_with_an_own_constructor() -> None:
    """jaxtyping checks the parameters of a constructor, and replace runs none here."""

    @jaxtyped(typechecker=beartype.beartype)
    @lw.pytree
    class Own:
        x: Float[Array, " n"]
        y: Any = lw.field(validator=lambda y: isinstance(y, Float[Array, " n"]))

        def __init__(self, x: Float[Array, " n"]) -> None:
            self.x = self.y = x

    assert lw.replace(Own(Y), x="text").x == "text"
    with pytest.raises(lw.errors.FieldCheckError, match=r"Own\.y"):
        lw.replace(Own(Y), y="text")


# ------------------------------------------------------------------- string annotations

MODULE = """
{future}
import dataclasses
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import leafwise as lw
{imports}

{decorator}
@lw.pytree
class Point:
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    act: lw.Static[str] = "relu"
    scale: dataclasses.InitVar[float] = 1.0

    def __post_init__(self, scale: float) -> None:
        pass

    def tail(self, z: Float[Array, " d"], start: int) -> Float[Array, " d"]:
        return z[start:]

{decorator}
@lw.pytree(slots=True)
class Sub(Point):
    next: Sub | None = None
    z: Int[Array, " d"] | None = None

def local():
    from jaxtyping import Float64 as Long, Float as Short

    {decorator}
    @lw.pytree
    class Local:
        x: Short[Array, " n"]
        y: Short[Array, " n"]

    return Local
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return what imports the module above, with some parts filled in, under a new name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, **parts: str) -> Any:
        source = MODULE
        for key, value in {"future": "", "imports": "", "decorator": "", **parts}.items():
            source = source.replace(f"    {{{key}}}", textwrap.indent(value, "    "))
            source = source.replace(f"{{{key}}}", value)
        if "annotations" not in source:
            source = source.replace("Sub | None", "object")
        (tmp_path / f"{name}.py").write_text(source)
        return importlib.import_module(name)

    return write


def check_module(made: Any) -> None:
    """Assert that all classes of the module above are checked."""
    good = made.Point(X, Y)
    sub = made.Sub(X, Y, next=made.Sub(X, Y), z=jnp.arange(3))
    assert jax.tree.map(lambda x: x, sub).act == good.act
    assert made.local()(Y, Y).x.shape == (2,)
    three = jnp.ones(3)
    wrong: list[Callable[[], Any]] = [
        lambda: made.Point(X, three),
        lambda: made.Point(X, Y, "a", "b"),
        lambda: made.Sub(X, Y, z=jnp.arange(2)),
        lambda: made.local()(Y, three),
        lambda: lw.replace(sub, x=jnp.ones((4, 3))),
    ]
    for make in wrong:
        with pytest.raises(TypeCheckError, match="__init__"):
            make()


FUTURE = "from __future__ import annotations"
CHECKER = "beartype.beartype"


@pytest.mark.works(
    "jaxtyping", "`from __future__ import annotations`, and names local to a function"
)
@pytest.mark.parametrize("future", ["", FUTURE], ids=["objects", "strings"])
def test_string_annotations(future: str, module: Any) -> None:
    """Annotations are found as strings too, those of bases and of local classes included."""
    made = module(
        f"written_{len(future)}",
        future=future,
        imports="import beartype\nfrom jaxtyping import jaxtyped",
        decorator=f"@jaxtyped(typechecker={CHECKER})",
    )
    check_module(made)
    if future:
        with pytest.raises(TypeCheckError, match="parameter 'next'"):
            made.Sub(X, Y, next=made.Point(X, Y))


@pytest.mark.works("jaxtyping", "`install_import_hook` over modules of leafwise classes")
@pytest.mark.parametrize("future", ["", FUTURE], ids=["objects", "strings"])
def test_import_hook(future: str, module: Any) -> None:
    """The hook decorates classes and their methods; both are checked."""
    name = f"hooked_{len(future)}"
    with install_import_hook(name, CHECKER):
        made = module(name, future=future, imports="import beartype")
    check_module(made)
    point = made.Point(X, Y)
    assert point.tail(Y, 0).shape == (2,)
    with pytest.raises(TypeCheckError, match=r"parameters of .*Point\.tail"):
        point.tail(X, 0)
    with pytest.raises(TypeCheckError, match=r"return value of .*Point\.tail"):
        point.tail(Y, 1)


# ------------------------------------------------------------------------ other orders


@pytest.mark.works(
    "jaxtyping", "the wrong order, `@jaxtyped` below, on a subclass: refused by name"
)
def test_wrong_order_on_a_subclass() -> None:
    """`@jaxtyped` below `@lw.pytree` takes the constructor of the base, which is refused."""

    @lw.pytree
    class Base:
        x: Float[Array, " n"]

    with pytest.raises(lw.errors.DefinitionError) as raised:

        @lw.pytree
        @jaxtyped(typechecker=beartype.beartype)
        class Sub(Base):
            z: Any = 1

    assert "Sub: a decorator below @lw.pytree (from jaxtyping)" in str(raised.value)
    assert "put @lw.pytree below it, next to `class Sub`" in str(raised.value)


@pytest.mark.works(
    "jaxtyping",
    "`@jaxtyped(typechecker=typeguard.typechecked)`",
    cannot="typeguard 4 rewrites source code, and a generated constructor has none, here or in a "
    "plain dataclass; use beartype",
)
def test_typeguard_alone() -> None:
    """typeguard's own decorator warns, and checks no constructor that was generated."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        @jaxtyped(typechecker=typeguard.typechecked)
        @lw.pytree
        class Unchecked:
            x: int

    assert any("not typechecking" in str(each.message) for each in caught)
    assert Unchecked("text").x == "text"  # type: ignore[arg-type]


@pytest.mark.works("jaxtyping", "`@beartype` alone above `@lw.pytree`")
@pytest.mark.works(
    "jaxtyping",
    "methods by `@beartype` alone above `@lw.pytree`",
    cannot="the methods of a pytree class bind as pytrees, so beartype finds no functions; "
    "put `@beartype` on the method or below `@lw.pytree`",
)
def test_beartype_alone() -> None:
    """beartype on the class checks the constructor alone; printing and comparing stay whole."""

    @beartype.beartype
    @lw.pytree
    class Point:
        x: Float[Array, "n d"]
        act: lw.Static[str] = "relu"

        def method(self, a: int) -> int:
            return a

        @beartype.beartype
        def checked(self, a: int) -> int:
            return a

    made = Point(X)
    assert repr(made) == "Point(x=f32[2,3], act='relu')"
    assert made == jax.tree.map(lambda x: x, made)
    assert hash(made) == hash(lw.replace(made))
    for arguments in ((Y,), (X, 1)):
        with pytest.raises(BeartypeCallHintViolation):
            Point(*arguments)
    assert jax.tree.map(lambda _: "text", made).x == "text"
    assert made.method("text") == "text"  # type: ignore[arg-type]
    with pytest.raises(BeartypeCallHintViolation):
        made.checked("text")  # type: ignore[arg-type]


@pytest.mark.works(
    "jaxtyping",
    "the wrong order, `@jaxtyped` below `@lw.pytree`, on a class without bases",
    cannot="jaxtyping silently skips a class that is not a dataclass yet, as under "
    "`@dataclass`: nothing is checked. Put `@lw.pytree` next to `class`",
)
def test_wrong_order() -> None:
    """A class that is not a dataclass yet when jaxtyping sees it is not checked."""

    @lw.pytree
    @jaxtyped(typechecker=beartype.beartype)
    class Wrong:
        x: Float[Array, " n"]

    assert Wrong("text").x == "text"  # type: ignore[arg-type]
