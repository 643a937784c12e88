"""Objects with an ``==`` of their own share a program; what differs inside them is named."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from tests.kit.specimens import Plain, Slotted

import leafwise as lw

pytestmark = pytest.mark.oracle


class Scale:
    """It compares by number alone, so that `Scale(1)` and `Scale(True)` are equal."""

    def __init__(self, by: Any, cache: Any = None) -> None:
        self.by = by
        self.cache = cache

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scale) and bool(self.by == other.by)

    def __hash__(self) -> int:
        return hash(self.by)


@pytest.mark.parametrize("cls", [Slotted, Plain])
@pytest.mark.parametrize("wrap", [lambda each: each, lambda each: (0, each)], ids=["bare", "deep"])
def test_a_shared_program_is_called_unsound(cls: Any, wrap: Any) -> None:
    """The program of the first object answers, and `explain` says by which attribute."""
    one, other = (cls(jnp.ones(2, int), wrap(Scale(by))) for by in (1, True))
    traces: list[Any] = []

    @lw.jit
    def step(params: Any) -> Any:
        traces.append(params)
        return params.w

    step(one)
    found = step.explain(other)
    step(other)
    assert len(traces) == 1
    assert found.outcome is lw.types.Outcome.REUSE
    (reason,) = found.unsound
    inner = "[1].by" if isinstance(one.n, tuple) else ".by"
    assert reason.path == f"params.n{inner}"
    assert (reason.before, reason.after) == (1, True)
    assert reason.change.startswith("equal by its own `==`, though `True` is not `1`")


@pytest.mark.parametrize("cls", [Slotted, Plain])
@pytest.mark.parametrize("caches", [(None, 3), ([], [1]), (object(), object())])
def test_a_cache_is_no_difference(cls: Any, caches: tuple[Any, Any]) -> None:
    """What one object has computed so far, or compares by identity, is passed over."""
    one, other = (cls(1.0, Scale(1, cache)) for cache in caches)
    assert not lw.signature(other).explain(lw.signature(one)).unsound


@pytest.mark.hazard
def test_keys_that_are_equal_to_jax_answer_for_their_values() -> None:
    """A static that changes later is no cause of a retrace: JAX compares the keys."""
    one, other = (Slotted(leaves, Scale(1)) for leaves in ((1.0,), (1.0, 2.0)))
    other.n.by = 2
    assert jax.tree.structure(lw.replace(one, w=0)) == jax.tree.structure(
        jax.tree.map(lambda _: 0, other, is_leaf=lambda each: isinstance(each, tuple))
    )
    found = lw.signature(other).explain(lw.signature(one))
    assert [each.path for each in found.reasons] == ["args[0].w"]
    assert [each.path for each in found.unsound] == ["args[0].n.by"]


def loose(base: type, rounded: Any) -> Any:
    """Return a subclass of a builtin whose instances are equal if they are once rounded."""

    def equal(self: Any, other: object) -> bool:
        return type(other) is type(self) and bool(rounded(base(self)) == rounded(base(other)))

    body = {"__eq__": equal, "__hash__": lambda self: hash(rounded(base(self)))}
    return type("Loose", (base,), body)


NEAR, CASELESS, MODULO = loose(float, round), loose(str, str.lower), loose(int, lambda n: n % 7)


@pytest.mark.parametrize(
    "values", [(NEAR(1.0), NEAR(1.05)), (CASELESS("a"), CASELESS("A")), (MODULO(1), MODULO(8))]
)
@pytest.mark.parametrize("is_argument", [False, True])
def test_a_subclass_of_a_builtin(values: tuple[Any, Any], is_argument: bool) -> None:
    """A tolerance or the like makes two values share a program, whose answer is the first one's."""
    jitted = jax.jit(lambda x, _: x, static_argnums=1 if is_argument else ())
    one, other = values if is_argument else (Slotted(1.0, value) for value in values)
    jitted(1.0, one)
    jitted(1.0, other)
    assert jitted._cache_size() == 1  # type: ignore[attr-defined]
    numbers = 1 if is_argument else ()
    found = lw.signature(1.0, other, static_argnums=numbers).explain(
        lw.signature(1.0, one, static_argnums=numbers)
    )
    assert found.outcome is lw.types.Outcome.REUSE
    assert [(each.before, each.after) for each in found.unsound] == [values]
    assert found.unsound[0].change.startswith("equal by its own `==`, though")
