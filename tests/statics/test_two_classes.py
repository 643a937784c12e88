"""Two classes never share a treedef, and classes that would lose something are refused."""

import abc
import dataclasses
import functools
from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

from .judge import Plain, Sound

pytestmark = pytest.mark.hazard


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OtherPlain:
    x: Any
    s: Any = dataclasses.field(metadata={"static": True})


@lw.pytree
class OtherSound:
    x: Any
    s: Any = lw.static_field()


@lw.pytree
class DerivedSound(Sound):
    """The same fields by inheritance."""


@lw.pytree(slots=True)
class SlottedSound:
    x: Any
    s: Any = lw.static_field()


class ForeignSound:
    """Registered by hand."""

    def __init__(self, x: Any, s: Any) -> None:
        self.x, self.s = x, s


lw.register(ForeignSound, dynamic=["x"], static=["s"])

SOUND = [Sound, OtherSound, DerivedSound, SlottedSound, ForeignSound]


@pytest.fixture
def other(sound: bool) -> Any:
    """Another class with the fields of `cls`."""
    return OtherSound if sound else OtherPlain


def test_treedefs_of_two_classes(cls: Any, other: Any, sound: bool) -> None:
    """Equal fields and statics do not make two classes one."""
    structures = [jax.tree.structure(kind(1.0, "a")) for kind in (cls, other)]
    assert (structures[0] != structures[1]) is sound


def test_every_pair_of_classes() -> None:
    """Derived, slotted and registered classes are distinct too."""
    structures = [jax.tree.structure(kind(1.0, "a")) for kind in SOUND]
    assert len(set(structures)) == len(SOUND)
    assert all(a != b for i, a in enumerate(structures) for b in structures[:i])


def test_cond_does_not_mix_classes(cls: Any, other: Any, sound: bool) -> None:
    """Branches of two classes are an error, not one class holding the other's data."""

    def mix() -> Any:
        return jax.lax.cond(False, lambda: cls(1.0, "a"), lambda: other(2.0, "a"))

    if sound:
        with pytest.raises(TypeError, match="OtherSound"):
            mix()
    else:
        assert type(mix()) is cls
        assert mix().x == 2.0, "this is the hazard"


def test_scan_does_not_change_the_class_of_its_carry(cls: Any, other: Any, sound: bool) -> None:
    """A carry that becomes another class is an error."""

    def run() -> Any:
        return jax.lax.scan(lambda p, _: (other(p.x, p.s), None), cls(1.0, "a"), None, length=2)

    if sound:
        with pytest.raises(TypeError, match="OtherSound"):
            run()
    else:
        run()


def test_one_program_per_class() -> None:
    """A jitted function is traced for each class."""
    traces = []
    program = jax.jit(lambda p: traces.append(type(p)) or p.x)
    for _ in range(2):
        for kind in SOUND:
            program(kind(1.0, "a"))
    assert traces == SOUND


def redefined() -> Any:
    """Return a class made by running one definition again, as a notebook cell does."""

    @lw.pytree
    class Cell:
        x: Any
        s: Any = lw.static_field()

    return Cell


def test_a_class_redefined() -> None:
    """Running a cell again works; old and new instances are of two classes, and say so."""
    old = redefined()
    before = old(1.0, "a")
    new = redefined()
    after = new(1.0, "a")
    assert jax.tree.structure(before) != jax.tree.structure(after)
    assert jax.tree.structure(new(2.0, "a")) == jax.tree.structure(after)
    assert jax.tree.map(lambda x: x + 1, before).x == 2.0
    assert (before == after) is False
    with pytest.raises((TypeError, ValueError), match="redefined since"):
        jax.tree.map(lambda a, b: a + b, before, after)
    with pytest.raises(TypeError, match="redefined since"):
        jax.lax.cond(True, lambda: before, lambda: after)


def test_a_static_class_redefined() -> None:
    """Values of a redefined class are other values, and the message says why."""

    def define() -> Any:
        @dataclasses.dataclass(frozen=True)
        class Local:
            depth: int = 1

        return Local

    first, second = Sound(1.0, define()()), Sound(1.0, define()())
    assert jax.tree.structure(first) != jax.tree.structure(second)
    keys = [repr(jax.tree.structure(p).node_data()[1]) for p in (first, second)]
    assert keys[0] != keys[1]


def test_an_undecorated_subclass_is_refused() -> None:
    """It would be one opaque leaf, or lose its new field: the first instance raises."""

    class Forgotten(Sound):
        y: int = 1

    class Abstract(Sound, abc.ABC):
        @abc.abstractmethod
        def method(self) -> None: ...

    with pytest.raises(lw.errors.UndecoratedSubclassError, match=r"@lw\.pytree"):
        Forgotten(1.0, "a")

    class PlainForgotten(Plain):
        pass

    assert jax.tree.leaves(PlainForgotten(1.0, "a")) != [1.0], "this is the hazard"

    @lw.pytree
    class Concrete(Abstract):
        def method(self) -> None: ...

    assert jax.tree.leaves(Concrete(1.0, "a")) == [1.0]


def test_slots_keep_their_leaves() -> None:
    """``slots=True`` does not cost the leaves."""
    instance = SlottedSound(1.0, "a")
    assert not hasattr(instance, "__dict__")
    assert jax.tree.leaves(instance) == [1.0]
    doubled = jax.jit(lambda p: jax.tree.map(lambda x: x * 2, p))(instance)
    assert (type(doubled), float(doubled.x), doubled.s) == (SlottedSound, 2.0, "a")


def test_a_subclass_that_overrides_a_default_keeps_staticness() -> None:
    """Overriding a static field silently is a definition error, not a new leaf."""
    with pytest.raises(lw.errors.DefinitionError, match=r"Silent\.s"):

        @lw.pytree
        class Silent(Sound):
            s: Any = "b"

    @lw.pytree
    class Explicit(Sound):
        s: Any = lw.static_field(default="b")

    assert jax.tree.leaves(Explicit(1.0)) == [1.0]


def test_optional_static_is_refused() -> None:
    """``Optional[Static[...]]`` would be a leaf; the error has the right spelling."""
    with pytest.raises(lw.errors.DefinitionError, match=r"lw\.Static\[str \| None\]"):

        @lw.pytree
        class Buried:
            s: Optional[lw.Static[str]] = None  # noqa: UP045


@pytest.mark.parametrize("kind", [str, bytes, np.dtype, str | None])
def test_a_forgotten_static_is_refused(kind: Any) -> None:
    """A field that JAX could not trace must say that it is static."""
    made = type("Forgot", (), {"__annotations__": {"s": kind}})
    with pytest.raises(lw.errors.DefinitionError, match=r"Forgot\.s"):
        lw.pytree(made)


def test_a_static_without_init_is_in_the_treedef() -> None:
    """A static that ``__post_init__`` sets is part of the key."""

    @lw.pytree
    class Derived:
        x: Any
        size: dataclasses.InitVar[int]
        n: int = lw.static_field(init=False)

        def __post_init__(self, size: int) -> None:
            self.n = size

    traces = []
    program = jax.jit(lambda p: traces.append(p.n) or jnp.sum(p.x) * p.n)
    for size in (2, 3, 2, True, 1):
        assert program(Derived(jnp.ones(2), size)) == 2 * size
    assert traces == [2, 3, True, 1]


def test_equality_is_one_bool(cls: Any, sound: bool) -> None:
    """``==`` between instances with arrays answers, where dataclasses raise."""
    pairs = [cls(jnp.ones(2), "a"), cls(jnp.ones(2), "a"), cls(jnp.zeros(2), "a")]
    if not sound:
        with pytest.raises(ValueError, match="ambiguous"):
            _ = pairs[0] == pairs[1]
        return
    assert (pairs[0] == pairs[1]) is True
    assert (pairs[0] == pairs[2]) is False
    assert hash(pairs[0]) == hash(pairs[1]) == hash(pairs[2])
    nan = cls(jnp.array([jnp.nan]), "a")
    assert nan == cls(jnp.array([jnp.nan]), "a")
    with pytest.raises(lw.errors.TracerComparisonError):
        jax.jit(lambda p, q: p == q)(pairs[0], pairs[1])


def test_metaclasses_with_an_equality_of_their_own() -> None:
    """Classes that call themselves equal (as ``jnp.float32`` and ``np.float32``) stay two."""

    class ByName(type):
        def __eq__(cls, other: object) -> bool:
            return isinstance(other, type) and cls.__name__ == other.__name__

        def __hash__(cls) -> int:
            return hash(cls.__name__)

    def record(field: str) -> Any:
        body = {"__annotations__": {field: Any}, "__module__": __name__}
        return dataclasses.dataclass(frozen=True)(ByName("Record", (), body))

    def tree(field: str) -> Any:
        body = {"__annotations__": {"x": Any, field: Any}, "__module__": __name__}
        return lw.pytree(ByName("Tree", (), body | {field: lw.static_field(default=1)}))

    first, second = record("a"), record("b")
    assert first == second
    statics = [first(1), second(1), second(2), first, second]
    structures = [jax.tree.structure(Sound(1.0, static)) for static in statics]
    assert len({*map(id, structures)}) == 5
    assert all(a != b for i, a in enumerate(structures) for b in structures[:i])
    one, two = tree("a"), tree("b")
    assert "Tree(a=1)" in str(jax.tree.structure(one(1.0)))
    assert "Tree(b=2)" in str(jax.tree.structure(two(1.0, 2)))
    for kind in (one, two):
        assert type(jax.tree.map(lambda x: x, kind(1.0))) is kind


def test_a_method_reads_statics_without_retracing() -> None:
    """Properties and methods of the class are its own business."""

    @lw.pytree
    class Busy:
        x: Any
        s: Any = lw.static_field(default=2)

        @property
        def double(self) -> Any:
            return self.x * self.s

        @functools.cached_property
        def triple(self) -> Any:
            return self.x * 3

    traces = []
    program = jax.jit(lambda p: traces.append(1) or p.double + p.triple)
    for _ in range(3):
        instance = Busy(2.0)
        assert program(instance) == 10
        assert instance.triple == 6
        assert program(instance) == 10
    assert len(traces) == 1


@lw.pytree
class Left:
    a: lw.Static[Any] = "a"

    def read_a(self) -> Any:
        return self.a


@lw.pytree
class Right:
    b: lw.Static[Any] = "b"

    def read_b(self) -> Any:
        return self.b


@lw.pytree
class Both(Left, Right):
    def read_all(self) -> Any:
        return self.read_a(), self.read_b()

    def super_a(self) -> Any:
        return super().a


def test_statics_of_two_bases_keep_their_places() -> None:
    """With several bases each method reads its own field, though their order changes."""
    both = Both(a=1, b=2)
    assert both.read_all() == (1, 2)
    assert jax.tree.map(lambda x: x, both).read_all() == (1, 2)
    assert jax.tree.structure(both) != jax.tree.structure(Both(a=2, b=1))


def test_super_reads_the_right_static() -> None:
    """``super().a`` never answers with the value of another field."""
    try:
        value = Both(a=1, b=2).super_a()
    except AttributeError:
        return  # as in a dataclass whose field has no default
    assert value in (1, "a")


def test_an_instance_is_whole_while_it_is_being_made() -> None:
    """In ``__post_init__`` treedef, hash and ``==`` speak of what is set so far."""
    seen: list[Any] = []

    @lw.pytree
    class Growing:
        x: Any
        n: int = lw.static_field(default=1)

        def __post_init__(self) -> None:
            for n in (True, 2):
                self.n = n
                seen.append((jax.tree.structure(self), hash(self), jax.tree.map(lambda x: x, self)))

    made = Growing(1.0)
    (first, _, early), (last, hashed, copied) = seen
    assert (early.n, copied.n, made.n) == (True, 2, 2)
    assert type(early.n) is bool
    assert first != last == jax.tree.structure(made)
    assert hashed == hash(made)
    assert copied == made
