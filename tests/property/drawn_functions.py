"""Jitted functions of many kinds, which all compute the same."""

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
from hypothesis import strategies as st

import leafwise as lw


def total(tree: Any) -> jax.Array:
    """Return the sum of all elements, of complex numbers the real part, of keys their data."""
    found = jnp.zeros((), jnp.float32)
    for leaf in jax.tree_util.tree_leaves(tree):
        array = jnp.asarray(leaf)
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
        found = found + jnp.sum(jnp.real(array).astype(jnp.float32))
    return found


@dataclasses.dataclass(frozen=True)
class DrawnFunction:
    """A jitted function that `jitted_functions` has drawn.

    Call it with one tree of arrays and scalars: it returns what `total` does.
    """

    function: Any
    maker: str
    composition: str
    options: dict[str, Any]
    _bodies: list[None] = dataclasses.field(compare=False, repr=False)

    @property
    def kind(self) -> str:
        """The maker, and the composition if there is one: ``"jax.jit of grad"``."""
        return f"{self.maker} of {self.composition}" if self.composition else self.maker

    @property
    def bodies(self) -> int:
        """How often the body has run: at each trace of a composition once or more."""
        return len(self._bodies)

    def __call__(self, tree: Any) -> jax.Array:
        """Return the sum of all elements of all leaves."""
        result: jax.Array = self.function(tree)
        return result

    def __repr__(self) -> str:
        """Return the code that makes such a function."""
        inner = f"{self.composition}(total)" if self.composition else "total"
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{self.maker}({inner}{options})"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # its caller's
        """Print the same in Hypothesis' counterexamples, not field by field."""
        printer.text(repr(self))


_Body = Callable[..., Any]


def _grad(body: _Body) -> _Body:
    def slope(tree: Any) -> Any:
        def scaled(factor: Any) -> Any:
            return factor * body(tree)

        return jax.grad(scaled)(jnp.float32(1))

    return slope


def _vmap(body: _Body) -> _Body:
    def mapped(tree: Any) -> Any:
        def scaled(factor: Any) -> Any:
            return factor * body(tree)

        return jnp.mean(jax.vmap(scaled)(jnp.array([1.0, 3.0], jnp.float32))) / 2

    return mapped


def _scan(body: _Body) -> _Body:
    def scanned(tree: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            return carry + body(tree), None

        return jax.lax.scan(step, jnp.float32(0), None, length=1)[0]

    return scanned


_COMPOSITIONS: Final[dict[str, Callable[[_Body], _Body]]] = {
    "": lambda body: body,
    "jit": jax.jit,
    "grad": _grad,
    "vmap": _vmap,
    "checkpoint": jax.checkpoint,
    "scan": _scan,
}
_MAKERS: Final[dict[str, Any]] = {"jax.jit": jax.jit, "lw.jit": lw.jit}
_OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"keep_unused": True},
    {"inline": True},
    {"static_argnames": "label"},
    {"static_argnums": 1},
    {"donate_argnames": "spent"},
)


@st.composite
def jitted_functions(draw: st.DrawFn) -> DrawnFunction:
    """Draw a new jitted function, with a cache of its own.

    All compute the same, `total`: the sum of all elements of all leaves of their one
    argument. They differ in who made them (``jax.jit``, ``leafwise.jit``), in options
    (``keep_unused``, ``inline``, ``static_argnames``, ``static_argnums``,
    ``donate_argnames``; the last three speak of further arguments, ``label`` and
    ``spent``, which have defaults and do not count), and in what stands around the sum
    inside: nothing, another ``jit``, ``grad``, ``vmap``, ``checkpoint``, ``scan``.
    """
    maker = draw(st.sampled_from(list(_MAKERS)))
    composition = draw(st.sampled_from(list(_COMPOSITIONS)))
    options = draw(st.sampled_from(_OPTIONS))
    bodies: list[None] = []

    def body(tree: Any) -> Any:
        bodies.append(None)
        return total(tree)

    composed = _COMPOSITIONS[composition](body)

    def summed(tree: Any, label: Any = None, spent: Any = None) -> Any:
        return composed(tree)

    function = _MAKERS[maker](summed, **options)
    return DrawnFunction(function, maker, composition, dict(options), bodies)
