"""Construction: who may assign what, and when."""

import copy
import dataclasses
import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw


def test_assigning_in_post_init() -> None:
    """`__post_init__` may assign dynamic and static fields, and the key follows."""

    @lw.pytree
    class P:
        x: Any
        a: lw.Static[int] = 1

        def __post_init__(self) -> None:
            self.x = self.x + 1
            self.a = self.a * 10

    assert (P(1, 2).x, P(1, 2).a) == (2, 20)
    assert jax.tree.structure(P(1, 2)) != jax.tree.structure(P(1, 3))
    assert jax.jit(lambda p: p.a)(P(1, 2)) == 20
    assert jax.jit(lambda p: p.a)(P(1, 3)) == 30


def test_own_init() -> None:
    """A hand-written `__init__` may assign fields; statics are validated at its end."""

    @lw.pytree
    class P:
        x: Any
        a: lw.Static[Any]
        d: Any = 5

        def __init__(self, n: int, a: Any = 0) -> None:
            self.x = jnp.zeros(n)
            self.a = a

    p = P(3, a=7)
    assert (p.x.shape, p.a, p.d) == ((3,), 7, 5)
    assert len(jax.tree.leaves(p)) == 2
    with pytest.raises(lw.errors.UnhashableStaticError, match=r"P\.a"):
        P(3, a=[])


def test_own_init_leaves_static_defaults() -> None:
    """A default that a hand-written `__init__` does not touch holds, and can be read in it."""

    @lw.pytree
    class P:
        x: Any
        a: lw.Static[int] = 3
        b: int = lw.static_field(default=4)

        def __init__(self) -> None:
            self.x = self.a * 2.0

    assert (P().x, P().a, P().b) == (6.0, 3, 4)
    assert jax.tree.structure(P()) == jax.tree.structure(jax.tree.map(lambda v: v + 1, P()))


def test_own_init_does_not_run_post_init() -> None:
    """As in dataclasses, only the generated `__init__` calls `__post_init__`."""
    calls: list[str] = []

    @lw.pytree
    class P:
        x: Any

        def __init__(self) -> None:
            self.x = 1

        def __post_init__(self) -> None:
            calls.append("post")

    P()
    assert calls == []


@pytest.mark.parametrize("name", ["x", "a", "new", "__leafwise_key__", "__class__"])
def test_frozen_after_construction(name: str) -> None:
    """Neither fields nor anything else can be set or deleted afterwards."""

    @lw.pytree
    class P:
        x: Any
        a: lw.Static[int] = 1

    p = P(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(p, name, 2)
    with pytest.raises(AttributeError):
        delattr(p, name)
    assert (p.x, p.a) == (1.0, 1)


def test_frozen_error_names_the_way_out() -> None:
    """The error names class and field and shows `lw.replace`; it is an `AttributeError`."""

    @lw.pytree
    class P:
        x: Any

    with pytest.raises(lw.errors.FrozenInstanceError, match=r"P\.x: .*frozen") as error:
        P(1.0).x = 2.0
    assert "lw.replace(obj, x=...)" in str(error.value)
    assert isinstance(error.value, AttributeError)
    with pytest.raises(lw.errors.FrozenInstanceError):
        del P(1.0).x


def test_frozen_within_methods() -> None:
    """A method cannot assign: only `__init__` and `__post_init__` can."""

    @lw.pytree
    class P:
        x: Any

        def grow(self) -> None:
            self.x = self.x + 1

    with pytest.raises(lw.errors.FrozenInstanceError):
        P(1.0).grow()


def test_frozen_after_a_failed_method_call_in_another_construction() -> None:
    """Constructing one instance never opens another one."""

    @lw.pytree
    class P:
        x: Any
        other: Any = None

        def __post_init__(self) -> None:
            if self.other is not None:
                self.other.x = 5

    first = P(1.0)
    with pytest.raises(lw.errors.FrozenInstanceError):
        P(2.0, first)
    assert first.x == 1.0


def test_what_is_no_field_cannot_be_assigned() -> None:
    """In `__init__` too: JAX would lose it. The error lists fields and a declaration."""

    @lw.pytree
    class P:
        x: Any

        def __post_init__(self) -> None:
            self.cache = {}

    with pytest.raises(lw.errors.FrozenInstanceError, match=r"P\.cache is not a field") as error:
        P(1.0)
    assert "P has x" in str(error.value)
    assert "`cache: ...`" in str(error.value)


def test_plain_dataclass_loses_what_is_no_field() -> None:
    """The hazard is real: `register_dataclass` drops such an attribute silently."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Plain:
        x: Any

        def fill(self) -> "Plain":
            self.cache = {}  # type: ignore[attr-defined]
            return self

    assert not hasattr(jax.tree.map(lambda v: v, Plain(1.0).fill()), "cache")


def test_field_without_a_value() -> None:
    """A field that nobody set is an error at the end of construction, all of them named."""

    @lw.pytree
    class P:
        x: Any = lw.field(init=False)
        y: Any = lw.field(init=False)
        a: Any = lw.static_field(init=False)

    with pytest.raises(lw.errors.FieldNotSetError, match=r"P\.x: the field has no value") as error:
        P()
    assert "y, a" in str(error.value)
    assert isinstance(error.value, TypeError)


def test_own_init_that_forgets_a_field() -> None:
    """The same for a hand-written `__init__`."""

    @lw.pytree
    class P:
        x: Any
        a: lw.Static[int]

        def __init__(self) -> None:
            self.x = 1

    with pytest.raises(lw.errors.FieldNotSetError, match=r"P\.a"):
        P()


def test_post_init_may_delete_and_set_again() -> None:
    """During construction an attribute can be deleted."""

    @lw.pytree
    class P:
        x: Any

        def __post_init__(self) -> None:
            del self.x
            self.x = 3

    assert P(1).x == 3


def test_post_init_may_use_jax_on_itself() -> None:
    """An instance can be flattened and replaced before its construction is over."""
    seen: list[Any] = []

    @lw.pytree
    class P:
        x: Any
        a: lw.Static[int] = 1

        def __post_init__(self) -> None:
            seen.append(jax.tree.leaves(self))
            seen.append(jax.jit(lambda p: p.x + p.a)(self))
            self.a = 5

    p = P(2.0)
    assert seen[0] == [2.0]
    assert seen[1] == 3.0
    assert jax.jit(lambda p: p.x + p.a)(p) == 7.0


def test_failed_construction_leaves_nothing() -> None:
    """After an error in `__post_init__`, the next construction is as usual."""

    @lw.pytree
    class P:
        x: Any

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError

    for _ in range(3):
        with pytest.raises(ValueError):  # noqa: PT011  # the user's own
            P(-1)
    assert P(1).x == 1


def test_cached_property_never_changes_the_treedef() -> None:
    """Touching a `cached_property` adds no leaf and no key; it is computed once."""
    runs: list[int] = []

    @lw.pytree
    class P:
        x: Any
        a: lw.Static[int] = 1

        @functools.cached_property
        def double(self) -> Any:
            runs.append(1)
            return self.x * 2

    p = P(2.0)
    before = jax.tree.structure(p)
    assert (p.double, p.double) == (4.0, 4.0)
    assert runs == [1]
    assert jax.tree.structure(p) == before
    assert jax.tree.leaves(p) == [2.0]
    assert jax.tree.map(lambda v: v + 1, p).double == 6.0
    assert p == P(2.0)
    assert lw.replace(p, x=5.0).double == 10.0


def test_property_with_a_setter_works_during_construction() -> None:
    """A property is the class's own business, and its setter may assign fields."""

    @lw.pytree
    class P:
        x: Any

        @property
        def half(self) -> Any:
            return self.x / 2

        @half.setter
        def half(self, value: Any) -> None:
            self.x = value * 2

        def __post_init__(self) -> None:
            self.half = 5.0

    assert P(1.0).x == 10.0
    with pytest.raises(lw.errors.FrozenInstanceError):
        P(1.0).half = 3.0


def test_object_setattr_on_a_static_is_not_lost() -> None:
    """Who goes behind the back with `object.__setattr__` still gets a fitting key."""

    @lw.pytree
    class P:
        a: lw.Static[int]

    p = P(1)
    object.__setattr__(p, "a", 2)
    assert jax.tree.structure(p) == jax.tree.structure(P(2))
    assert jax.jit(lambda p: p.a)(p) == 2
    assert hash(p) == hash(P(2))
    assert p == P(2)


def test_wrong_arguments_are_type_errors() -> None:
    """Too many, too few and unknown arguments raise as in dataclasses, by class name."""

    @lw.pytree
    class P:
        x: Any

    for arguments, keywords in (((), {}), ((1, 2), {}), ((1,), {"y": 2})):
        with pytest.raises(TypeError, match=r"P\.__init__\(\)"):
            P(*arguments, **keywords)


def test_construction_inside_jit() -> None:
    """Instances can be constructed and returned inside traced code."""

    @lw.pytree
    class P:
        x: Any
        a: lw.Static[int] = 1

    out = jax.jit(lambda v: P(v, 3))(jnp.ones(2))
    assert type(out) is P
    assert (out.x.shape, out.a) == ((2,), 3)


@pytest.mark.hazard
def test_a_field_that_leads_back() -> None:
    """Nor can a tree contain itself: JAX would flatten until the process dies."""

    @lw.pytree
    class Model:
        act: Any
        x: Any

        def __init__(self, x: Any, *, method: bool) -> None:
            self.x = x
            self.act = self.twice if method else self

        def twice(self) -> Any:
            return self.x * 2

    for method, words in (
        (
            True,
            r"its own method twice, .*\n  fix: call self\.twice instead; or store Model\.twice",
        ),
        (False, r"the instance itself, .*\n  fix: leave act out"),
    ):
        with pytest.raises(lw.errors.TreeError, match=rf"^Model\.act: {words}"):
            Model(1.0, method=method)


@pytest.mark.hazard
@pytest.mark.parametrize(
    "way",
    [
        lambda self: (1, self),
        lambda self: [self.twice],
        lambda self: {"a": (self.twice, 2)},
        lambda self: Wrapped([self]),
        lambda self: Wrapped(self).called,
    ],
    ids=["tuple", "list", "dict", "instance", "method"],
)
def test_a_field_that_contains_a_way_back(way: Any) -> None:
    """A container or another instance in between is looked through."""

    @lw.pytree
    class Model:
        act: Any = None

        def __post_init__(self) -> None:
            self.act = way(self)

        def twice(self) -> None: ...

    with pytest.raises(lw.errors.TreeError, match=r"^Model\.act: it contains (its|the)"):
        Model()


@lw.pytree
class Wrapped:
    inside: Any
    kind: lw.Static[int] = 2

    def called(self) -> None: ...


def test_vars_are_a_tree_of_the_fields() -> None:
    """`vars` of an instance is compared leaf by leaf, as flax's users do; the key is no leaf."""
    one, same, other = (vars(Wrapped(jnp.ones(2), kind)) for kind in (1, 1, True))
    assert [path for path, _ in jax.tree.leaves_with_path(one)] == [
        (jax.tree_util.DictKey("inside"),)
    ]
    assert jax.tree.structure(one) == jax.tree.structure(same) != jax.tree.structure(other)
    chex.assert_trees_all_close(one, same)
    assert jax.jit(lambda tree: tree)(one)["inside"].shape == (2,)


def test_traceback_shows_generated_code() -> None:
    """Generated code is readable in tracebacks: `linecache` knows it."""
    import linecache
    import traceback

    def fails() -> Any:
        raise ValueError("boom")

    @lw.pytree
    class P:
        x: Any = lw.field(default_factory=fails)

    with pytest.raises(ValueError, match="boom") as error:
        P()
    frames = traceback.extract_tb(error.value.__traceback__)
    generated = [frame for frame in frames if frame.filename.startswith("<leafwise")]
    assert generated
    assert linecache.getline(generated[0].filename, generated[0].lineno or 0).strip()


@lw.pytree
class Env:
    w: Any
    dt: lw.Static[float] = 0.1
    size: lw.Static[int] = 8


@pytest.mark.parametrize("slots", [False, True])
def test_a_wrapper_that_forwards(slots: bool) -> None:
    """While an instance is unfinished, its `__getattr__` gives no key of what it wraps."""

    class Forwards:
        env: Env

        def __getattr__(self, name: str) -> Any:
            return getattr(self.env, name)

    @lw.pytree(slots=slots)
    class Wrapper(Forwards):
        env: Env
        scale: lw.Static[int] = 2
        extra: lw.Static[int] = lw.static_field(init=False)

        def __post_init__(self) -> None:
            self.extra = self.scale * 10

    made = Wrapper(Env(1.0), 3)
    copies = [made, copy.copy(made), copy.deepcopy(made), lw.replace(made, env=Env(2.0))]
    assert [(each.scale, each.extra, each.dt) for each in copies] == [(3, 30, 0.1)] * 4

    @lw.pytree(slots=slots)
    class Own(Forwards):
        env: Env
        scale: lw.Static[int]

        def __init__(self, env: Env, scale: int) -> None:
            self.env = env
            self.scale = scale

    assert (Own(Env(1.0), 3).scale, Own(Env(1.0), 3).size) == (3, 8)


def test_a_constructor_that_forgets_its_base() -> None:
    """A field of a base without a value: the call of its constructor is missing."""

    @lw.pytree
    class Longer(Env):
        k: Any = 0

        def __init__(self, k: Any) -> None:
            self.k = k

    with pytest.raises(lw.errors.FieldNotSetError, match=r"fix: call super\(\).__init__\(\.\.\.\)"):
        Longer(1)
