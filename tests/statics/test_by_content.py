"""`static_field(by="content")`: functions compared by what they are made of."""

import builtins
import collections
import functools
import itertools
import math
import operator
import os
import pickle
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw


@lw.pytree
class P:
    x: Any
    f: Any = lw.static_field(by="content")


@lw.pytree
class ByIdentity:
    x: Any
    f: Any = lw.static_field()


def structure(function: Any, cls: Any = P) -> Any:
    """Return the treedef of an instance with this function."""
    return jax.tree.structure(cls(1.0, function))


def same(one: Any, other: Any) -> bool:
    """Return whether two functions are one key."""
    first, second = P(1.0, one), P(2.0, other)
    equal: bool = jax.tree.structure(first) == jax.tree.structure(second)
    assert equal is (jax.tree.structure(second) == jax.tree.structure(first))
    return equal


def made(source: str, **names: Any) -> Any:
    """Return the function `f` that a source text defines, in a module of its own."""
    namespace = {"__name__": "made", **names}
    exec(source, namespace)  # noqa: S102  # sources that differ in one place
    return namespace["f"]


def times(by: Any) -> Any:
    """Return a function that closes over a factor."""
    return lambda x: by * x


def times_first(held: list[Any]) -> Any:
    """Return a function that closes over a list."""
    return lambda x: held[0] * x


def closing(**cells: Any) -> Any:
    """Return a function that closes over these values."""
    names = ", ".join(cells)
    source = f"def f({names}):\n    def inner(): return ({names},)\n    return inner"
    return made(source)(**cells)


# What is distinct, and what is not


TWINS = {
    "lambda": ("f = lambda x: 2 * x", "f = lambda x: 2 * x"),
    "another line": ("f = lambda x: 2 * x", "\n\n\nf = lambda x: 2 * x"),
    "default": ("def f(x, by=(1, 2.0)): pass", "def f(x, by=(1, 2.0)): pass"),
    "nan": ("f = lambda: 1e999 - 1e999", "f = lambda: 1e999 - 1e999"),
    "inner": ("def f():\n    def g(): return 1\n    return g",) * 2,
    "sets": ("f = lambda x: x in {'a', 'b', 'c'}", "f = lambda x: x in {'c', 'b', 'a'}"),
}

OTHERS = {
    "constant": ("f = lambda x: 2 * x", "f = lambda x: 3 * x"),
    "bool": ("f = lambda x: 1 * x", "f = lambda x: True * x"),
    "float": ("f = lambda x: 1 * x", "f = lambda x: 1.0 * x"),
    "zero": ("f = lambda x: 0.0 * x", "f = lambda x: -0.0 * x"),
    "complex": ("f = lambda x: 0j * x", "f = lambda x: -0j * x"),
    "in a tuple": ("f = lambda: (1, (2,))", "f = lambda: (1, (2.0,))"),
    "in a set": ("f = lambda x: x in {1, 2}", "f = lambda x: x in {1.0, 2}"),
    "operator": ("f = lambda x: 2 * x", "f = lambda x: 2 + x"),
    "name": ("def f(x): return x", "def g(x): return x\nf = g"),
    "global": ("f = lambda x: abs(x)", "f = lambda x: max(x)"),
    "attribute name": ("f = lambda x: x.T", "f = lambda x: x.mT"),
    "parameter": ("f = lambda x: x", "f = lambda y: y"),
    "kind of parameter": ("def f(x, y): pass", "def f(x, *, y): pass"),
    "by position": ("def f(x, y): pass", "def f(x, y, /): pass"),
    "stars": ("def f(*x): pass", "def f(**x): pass"),
    "default": ("def f(x=1): pass", "def f(x=True): pass"),
    "no default": ("def f(x=None): pass", "def f(x): pass"),
    "keyword default": ("def f(*, x=1): pass", "def f(*, x=1.0): pass"),
    "inner constant": (
        "def f():\n    def g(): return 1\n    return g",
        "def f():\n    def g(): return True\n    return g",
    ),
    "generator": ("def f(): return 1", "def f(): yield 1"),
    "async": ("def f(): return 1", "async def f(): return 1"),
    "handler": (
        "def f():\n    try: return 1\n    except ValueError: return 2",
        "def f():\n    try: return 1\n    except TypeError: return 2",
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_the_same_source_is_one_key(name: str) -> None:
    """Functions made twice from the same text are one key, whatever their lines."""
    one, other = map(made, TWINS[name])
    assert one is not other
    assert same(one, other)
    assert structure(one, ByIdentity) != structure(other, ByIdentity)


@pytest.mark.parametrize("name", OTHERS)
def test_another_source_is_another_key(name: str) -> None:
    """Whatever the code of two functions does not share tells them apart."""
    assert not same(*map(made, OTHERS[name]))


VALUES = [1, True, 1.0, -1, "1", b"1", None, (1,), (1.0,), [1], [True], {1}, {"a": 1}, {"a": 1.0}]


@pytest.mark.parametrize("place", ["closure", "default", "keyword default", "attribute", "partial"])
def test_values_inside_are_compared_type_by_type(place: str) -> None:
    """Each value inside a function is a key of its own, the same value the same."""

    def put(value: Any) -> Any:
        if place == "closure":
            return closing(value=value)
        if place == "partial":
            return functools.partial(closing, value, key=value)
        function = made("def f(x=None, *, y=None): pass")
        if place == "default":
            function.__defaults__ = (value,)
        elif place == "keyword default":
            function.__kwdefaults__ = {"y": value}
        else:
            function.value = value
        return function

    for one, other in itertools.product(range(len(VALUES)), repeat=2):
        first, second = put(VALUES[one]), put(pickle.loads(pickle.dumps(VALUES[other])))  # noqa: S301
        assert same(first, second) is (one == other), (VALUES[one], VALUES[other])


class Scale:
    """A callable object without ``==``."""

    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return self.by * x

    def apply(self, x: Any) -> Any:
        """Do the same under a name."""
        return self.by * x


class Slotted:
    __slots__ = ("by",)

    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return self.by * x


def wrapped(by: Any) -> Any:
    """Return a function behind a decorator."""

    def inner(x: Any) -> Any:
        return by * x

    @functools.wraps(inner)
    def outer(x: Any) -> Any:
        return inner(x)

    return outer


def recursive(by: Any) -> Any:
    """Return a function that calls itself."""

    def down(x: Any, n: int = 2) -> Any:
        return by * x if n == 0 else down(x, n - 1)

    return down


def mutual(by: Any) -> Any:
    """Return two functions in a tuple that they both close over."""

    def even(n: int) -> Any:
        return by if n == 0 else both[1](n - 1)

    def odd(n: int) -> Any:
        return both[0](n - 1)

    both = (even, odd)
    return both


def with_jvp(by: Any) -> Any:
    """Return a function with a derivative of its own."""

    @jax.custom_jvp
    def scale(x: Any) -> Any:
        return by * x

    scale.defjvp(lambda primals, tangents: (by * primals[0], by * tangents[0]))
    return scale


def with_vjp(by: Any) -> Any:
    """Return a function with a reverse rule of its own."""

    @jax.custom_vjp
    def scale(x: Any) -> Any:
        return by * x

    scale.defvjp(lambda x: (by * x, None), lambda _, g: (by * g,))
    return scale


MAKERS: dict[str, Callable[[Any], Any]] = {
    "closure": lambda by: lambda x: by * x,
    "default": lambda by: lambda x, by=by: by * x,
    "partial": lambda by: functools.partial(operator.mul, by),
    "partial of a lambda": lambda by: functools.partial(lambda by, x: by * x, by),
    "jax partial": lambda by: jax.tree_util.Partial(lambda x: by * x),
    "object": Scale,
    "slotted object": Slotted,
    "bound method": lambda by: Scale(by).apply,
    "slot wrapper": lambda by: Scale(by).__call__,
    "wraps": wrapped,
    "recursive": recursive,
    "mutual": mutual,
    "nested": lambda by: lambda: lambda: lambda: by,
    "custom_jvp": with_jvp,
    "custom_vjp": with_vjp,
    "getter": lambda by: operator.itemgetter(by),
    "builtin method": lambda by: [by].count,
    "method of a str": lambda by: f"{by!r}".join,
    "jax array": lambda by: times(jnp.full(3, by)),
    "numpy array": lambda by: times(np.full(3, by)),
    "key": lambda by: closing(k=jax.random.key(by)),
    "static array": lambda by: times(lw.StaticArray([by])),
    "deque": lambda by: closing(d=collections.deque([by], maxlen=3)),
    "defaultdict": lambda by: closing(d=collections.defaultdict(list, a=by)),
    "frozenset of functions": lambda by: frozenset({lambda: by, lambda: (by,)}),
    "mapping": lambda by: lw.FrozenMapping(a=lambda: by),
    "cell": lambda by: types.CellType(by),
}


@pytest.mark.parametrize("name", MAKERS)
def test_built_twice(name: str) -> None:
    """What is built twice from equal parts is one key and one trace; from others another."""
    make = MAKERS[name]
    by = (1.5, 2.5) if name not in ("key", "getter") else (1, 2)
    assert same(make(by[0]), make(by[0]))
    assert not same(make(by[0]), make(by[1]))

    @jax.jit
    def program(p: Any) -> Any:
        return p.x + 1

    with lw.budget(traces=2, exact=True, of="program"):
        for value in (by[0], by[0], by[1], by[0], by[1]):
            program(P(1.0, make(value)))


def test_loop_variables() -> None:
    """Lambdas of one loop, which all see its last value, are equal when they are used."""
    late = [lambda x: i * x for i in range(3)]  # noqa: B023  # that is the point
    bound = [lambda x, i=i: i * x for i in range(3)]
    assert same(late[0], late[2])
    assert not same(bound[0], bound[2])


def test_sharing_is_part_of_the_content() -> None:
    """Two cells with one list are not two cells with two lists: a change shows in both."""
    shared = [1]
    assert not same(closing(a=shared, b=shared), closing(a=[1], b=[1]))
    other = [1]
    assert same(closing(a=shared, b=shared), closing(a=other, b=other))


def test_functions_of_packages_are_themselves() -> None:
    """What an installed package has under a name is itself, whatever it holds."""
    for function in (jax.nn.relu, jnp.tanh, np.add, math.sin, len, jax.lax.scan, jnp.add):
        assert same(function, function)
    assert not same(jax.nn.relu, jax.nn.gelu)
    assert not same(math.sin, math.cos)
    assert not same(np.add, np.multiply)
    assert same((int, float, jnp), (int, float, jnp))


def test_a_class_is_itself() -> None:
    """Classes compare by identity, so that instances of a redefined one are others."""
    classes = [type("C", (), {"__call__": lambda self: 1}) for _ in range(2)]
    assert not same(*classes)
    assert not same(*[cls() for cls in classes])
    assert same(classes[0](), classes[0]())


def test_an_object_that_is_no_function_is_itself() -> None:
    """An object without ``==`` compares by identity in a closure too, with its attributes."""
    cls: Any = type("Settings", (), {"__module__": __name__})
    one, other = cls(), cls()
    assert same(closing(s=one), closing(s=one))
    assert not same(closing(s=one), closing(s=other))
    first = structure(closing(s=one))
    one.rate = 2
    assert structure(closing(s=one)) != first


def test_an_object_whose_getattr_raises() -> None:
    """A callable that refuses every attribute is compared by those that it has."""

    class Hostile:
        def __call__(self) -> int:
            return 1

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    assert same(Hostile(), Hostile())


def test_sentinels_are_themselves() -> None:
    """An `object()` is there to be told from all others."""
    missing = object()
    assert same(closing(m=missing), closing(m=missing))
    assert not same(closing(m=object()), closing(m=object()))


# Globals


def test_a_global_that_was_rebound() -> None:
    """A function that reads a global is another key once the global is another value."""
    source = "def f(x): return rate * x"
    before, after = made(source, rate=2), made(source, rate=3)
    assert not same(before, after)
    assert same(before, made(source, rate=2))
    assert not same(before, made(source, rate=2.0))
    assert not same(before, made(source))  # not bound yet

    @jax.jit
    def program(p: Any) -> Any:
        return p.f(p.x)

    function = made(source, rate=2)
    assert program(P(1.0, function)) == 2
    function.__globals__["rate"] = 3
    assert program(P(1.0, function)) == 3  # by identity it would be 2


def test_what_a_global_function_reads() -> None:
    """Globals are followed through functions, modules and classes of the user's own."""
    source = "def g(x): return rate * x\ndef f(x): return g(x)"
    assert same(made(source, rate=2), made(source, rate=2))
    assert not same(made(source, rate=2), made(source, rate=3))
    module = types.ModuleType("settings_of_a_test")
    cls: Any = type("Settings", (), {})
    for holder in (module, cls):
        holder.rate = 2
        function = made("def f(x): return s.rate * x", s=holder)
        first = structure(function)
        holder.other = 1  # which it does not read
        assert structure(function) == first
        holder.rate = 3
        assert structure(function) != first


def test_what_the_class_of_an_object_reads() -> None:
    """The methods of a callable object read globals too."""
    source = "class C:\n    def __call__(self, x): return rate * x\nf = C()"
    function = made(source, rate=2)
    first = P(1.0, function)
    type(function).__call__.__globals__["rate"] = 3
    assert structure(function) != jax.tree.structure(first)


def test_a_global_that_cannot_be_compared_is_itself() -> None:
    """A lock or a file under a global name does not forbid anything."""
    lock = threading.Lock()
    source = "def f(x):\n    with lock: return x"
    assert same(made(source, lock=lock), made(source, lock=lock))
    assert not same(made(source, lock=lock), made(source, lock=threading.Lock()))


def test_a_global_list_that_changed() -> None:
    """The content of a global list counts, at the time when an instance is built."""
    source = "def f(): return sizes"
    sizes = [1]
    function = made(source, sizes=sizes)
    first = P(1.0, function)
    sizes.append(2)
    assert structure(function) != jax.tree.structure(first)


def test_code_that_sees_all_globals() -> None:
    """A function that can read globals without naming them is one with its module only."""
    source = "def f(): return globals()['a']"
    assert not same(made(source), made(source))
    function = made(source)
    copied = types.FunctionType(function.__code__, function.__globals__, "f")
    assert same(function, copied)


def test_the_hazard_of_a_global_that_no_code_names() -> None:
    """An import inside a function, or `getattr` on a module, is not followed: documented."""
    module = types.ModuleType("hidden_settings_of_a_test")
    sys.modules[module.__name__] = module
    module.rate = 2  # type: ignore[attr-defined]
    try:
        function = made("def f():\n    import hidden_settings_of_a_test as h\n    return h.rate")
        first = structure(function)
        module.rate = 3  # type: ignore[attr-defined]
        assert structure(function) == first
    finally:
        del sys.modules[module.__name__]


# What is refused


def counting() -> Callable[[], int]:
    """Return a function that changes its own cell."""
    n = 0

    def count() -> int:
        nonlocal n
        n += 1
        return n

    return count


def generator() -> Iterator[int]:
    """Yield one number."""
    yield 1


@functools.cache
def cached() -> None:
    """Do nothing, once; found under its name."""


LOCK = threading.Lock()

REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "lock": (lambda: closing(mu=threading.Lock()), r"P\.f\.__closure__\['mu'\]", "lock"),
    "file": (lambda: closing(file=sys.__stderr__), r"__closure__\['file'\]", "TextIOWrapper"),
    "generator": (lambda: closing(it=generator()), r"__closure__\['it'\]", "generator"),
    "iterator": (lambda: closing(it=iter([1])), r"__closure__\['it'\]", "list_iterator"),
    "jitted": (lambda: closing(j=jax.jit(lambda x: x)), r"__closure__\['j'\]", "PjitFunction"),
    "local cache": (lambda: functools.cache(lambda: 1), r"P\.f:", "lru_cache"),
    "large array": (lambda: closing(a=jnp.zeros(1 << 15)), r"__closure__\['a'\]", "64 KiB"),
    "large numpy": (lambda: closing(a=np.zeros(1 << 15)), r"__closure__\['a'\]", "64 KiB"),
    "objects": (lambda: closing(a=np.array([object()])), r"__closure__\['a'\]", "of numbers"),
    "own cell": (counting, r"P\.f:", "assigns 'n'"),
    "own global": (
        lambda: made("def f():\n    global n\n    n = 1"),
        r"P\.f:",
        "assigns 'global n'",
    ),
    "deep": (
        lambda: functools.reduce(lambda f, _: lambda: f, range(3000), lambda: 1),
        r"P\.f:",
        "nested too deeply",
    ),
    "default": (lambda: lambda x=LOCK: x, r"P\.f\.__defaults__\[0\]", "lock"),
    "partial": (lambda: functools.partial(len, generator()), r"P\.f\.args\[0\]", "generator"),
    "nested": (
        lambda: (closing(g=closing(mu=threading.Lock())),),
        r"P\.f\[0\]\.__closure__\['g'\]\.__closure__\['mu'\]",
        "lock",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_path(name: str) -> None:
    """What cannot be compared is refused, by its path, with the reason and a way out."""
    make, path, reason = REFUSED[name]
    with pytest.raises(lw.errors.StaticFieldError, match=path) as error:
        P(1.0, make())
    message = str(error.value)
    assert reason in message
    assert "fix:" in message
    assert "lw.static_field()" in message
    ByIdentity(1.0, make())


def test_tracers_are_refused() -> None:
    """A tracer anywhere inside is named."""

    @jax.jit
    def program(x: Any) -> Any:
        P(1.0, closing(a=(x,)))
        return x

    with pytest.raises(lw.errors.TracerInStaticError, match=r"P\.f\.__closure__\['a'\]\[0\]"):
        program(1.0)


def test_outside_of_functions_nothing_changes() -> None:
    """A list, a dict or an array that is no part of a function is refused as ever."""
    for value in ([1], {"a": 1}, {1}, jnp.ones(2), np.ones(2), ([1],)):
        with pytest.raises(lw.errors.StaticFieldError):
            P(1.0, value)
    assert not same(1, True)
    assert same((1, "a"), (1, "a"))
    assert not same(0.0, -0.0)


def test_a_named_cache_is_itself() -> None:
    """A cached or jitted function that its module has under its name is taken for itself."""
    assert same(cached, cached)
    assert same(closing(c=cached), closing(c=cached))


# Changes in place


def test_what_a_named_cache_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A global that a cached function reads counts: once the cache is cleared, it is read."""
    table: Any = functools.lru_cache(made("f = lambda: rate", rate=2))
    table.__qualname__ = table.__name__ = "a_cached_table"
    table.__module__ = __name__
    monkeypatch.setitem(globals(), "a_cached_table", table)
    function = made("f = lambda x: table() * x", table=table)
    before = structure(function)
    assert structure(function) == before
    table.__wrapped__.__globals__["rate"] = 3
    assert structure(function) != before


def cell(function: Any) -> Any:
    """Return the first cell of a function."""
    return function.__closure__[0]


def changed_cell() -> tuple[Any, Callable[[], None]]:
    """Return a function, and what gives its cell another value."""
    function = closing(lr=1)
    return function, lambda: setattr(cell(function), "cell_contents", 2)


def nonlocal_setter() -> tuple[Any, Callable[[], None]]:
    """Return a function, and another one that assigns its variable."""
    lr = 1

    def read() -> int:
        return lr

    def change() -> None:
        nonlocal lr
        lr = 2

    return read, change


def changed_default() -> tuple[Any, Callable[[], None]]:
    """Return a function with a list as its default, and what grows it."""
    held = [1]
    return made("def f(x=None): pass"), lambda: held.append(2)


def case(name: str) -> tuple[Any, Callable[[], None]]:  # a table
    """Return a function and what changes it in place."""
    function: Any
    if name == "cell":
        return changed_cell()
    if name == "nonlocal":
        return nonlocal_setter()
    if name == "deleted cell":
        function = closing(lr=1)
        return function, lambda: delattr(cell(function), "cell_contents")
    if name == "list in a cell":
        function = closing(a=[1])
        return function, lambda: cell(function).cell_contents.append(2)
    if name == "bool in a list":
        function = closing(a=[1])
        return function, lambda: cell(function).cell_contents.__setitem__(0, True)
    if name == "dict in a cell":
        function = closing(a={"b": {"c": 1}})
        return function, lambda: cell(function).cell_contents["b"].update(c=2)
    if name == "array in a cell":
        function = closing(a=np.ones(2))
        return function, lambda: cell(function).cell_contents.__setitem__(0, 2.0)
    if name == "list as default":
        function = made("def f(x=[1]): pass")
        return function, lambda: function.__defaults__[0].append(2)
    if name == "defaults":
        function = made("def f(x=1): pass")
        return function, lambda: setattr(function, "__defaults__", (True,))
    if name == "keyword defaults":
        function = made("def f(*, x=1): pass")
        return function, lambda: function.__kwdefaults__.update(x=2)
    if name == "attribute":
        function = made("def f(): pass")
        return function, lambda: setattr(function, "tag", 1)
    if name == "code":
        function = made("def f(): return 1")
        return function, lambda: setattr(function, "__code__", made("def f(): return 2").__code__)
    if name == "object":
        function = Scale(1)
        return function, lambda: setattr(function, "by", 2)
    receiver = Scale(1)
    return receiver.apply, lambda: setattr(receiver, "by", 2)


CASES = [
    *("cell", "nonlocal", "deleted cell", "list in a cell", "bool in a list", "dict in a cell"),
    *("array in a cell", "list as default", "defaults", "keyword defaults", "attribute", "code"),
    *("object", "receiver"),
]


@pytest.mark.parametrize("name", CASES)
def test_a_change_in_place_is_seen_at_the_next_flatten(name: str) -> None:
    """An instance whose function changed is refused when it is next used; a new one is new."""
    function, change = case(name)
    p = P(1.0, function)
    before = jax.tree.structure(p)
    assert jax.tree.structure(p) == before
    change()
    with pytest.raises(lw.errors.StaticMutatedError, match=r"P\.f.*changed in place"):
        jax.tree.structure(p)
    with pytest.raises(lw.errors.StaticMutatedError, match=r"P\.f"), lw.debug.check_statics():
        jax.tree.structure(p)
    assert structure(function) != before


def test_the_message_of_a_change_names_the_cell() -> None:
    """The path of what changed is told, with what it was and is."""
    function, change = changed_cell()
    p = P(1.0, function)
    change()
    with pytest.raises(
        lw.errors.StaticMutatedError, match=r"P\.f\.__closure__\['lr'\] was 1, now 2"
    ):
        jax.tree.leaves(p)


def test_a_change_that_was_taken_back() -> None:
    """What is as it was is the same key again."""
    function = closing(a=[1, "b" * 50])
    p = P(1.0, function)
    before = jax.tree.structure(p)
    cell(function).cell_contents[:] = [1, "".join(["b"] * 50)]
    assert jax.tree.structure(p) == before
    cell(function).cell_contents = [1, "b" * 50]
    assert jax.tree.structure(p) == before
    with lw.debug.check_statics():
        assert jax.tree.structure(p) == before


def test_no_program_of_a_changed_function_answers_for_another() -> None:
    """A function that changed after its key was made cannot be traced under that key."""

    @jax.jit
    def program(p: Any) -> Any:
        return p.f(p.x)

    held = [2.0]
    first = P(jnp.ones(2), times_first(held))
    assert program(first)[0] == 2
    held[0] = 3.0
    with pytest.raises(lw.errors.StaticMutatedError):
        program(first)
    fresh = P(jnp.ones(3), times_first([2.0]))
    assert program(fresh)[0] == 2


def test_ids_are_not_mistaken() -> None:
    """A class that was in a cell and is gone is never taken for a new one at its address."""
    seen = set()
    for i in range(50):
        function = closing(c=type("C", (), {"i": i}))
        p = P(1.0, function)
        seen.add(jax.tree.structure(p).node_data()[1])
        cell(function).cell_contents = None
    assert len(seen) == 50


# Fields and classes


def test_by_takes_two_words() -> None:
    """Any other word is refused, with both that there are."""
    with pytest.raises(TypeError, match=r"by='value'.*'identity'.*'content'"):
        lw.static_field(by="value")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(TypeError):
        lw.field(by="content")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def test_two_fields_of_two_kinds() -> None:
    """Each field compares its functions in its own way."""

    @lw.pytree
    class Mixed:
        x: Any
        a: Any = lw.static_field(by="content")
        b: Any = lw.static_field(by="identity")

    one, other = (lambda x: x), made("f = lambda x: x")
    twins = [made("f = lambda x: 2 * x") for _ in range(2)]
    same_a = [jax.tree.structure(Mixed(1.0, twin, one)) for twin in twins]
    same_b = [jax.tree.structure(Mixed(1.0, one, twin)) for twin in twins]
    assert same_a[0] == same_a[1]
    assert same_b[0] != same_b[1]
    assert jax.tree.structure(Mixed(1.0, one, other)) != jax.tree.structure(Mixed(1.0, other, one))


def test_inheritance() -> None:
    """A subclass inherits how functions are compared, and may say otherwise."""

    @lw.pytree
    class Same(P):
        y: Any = 0.0

    @lw.pytree
    class Other(P):
        f: Any = lw.static_field()

    twins = [made("f = lambda x: x") for _ in range(2)]
    assert structure(twins[0], Same) == structure(twins[1], Same)
    assert structure(twins[0], Other) != structure(twins[1], Other)
    assert structure(twins[0], Same) != structure(twins[0])


@pytest.mark.parametrize("options", [{}, {"slots": True}, {"many_statics": True}])
def test_options_of_classes_and_fields(options: dict[str, Any]) -> None:
    """Slots, `many_statics`, converters, checks, freezing and defaults go with it."""

    @lw.pytree(**options)
    class Q:
        x: Any
        f: Any = lw.static_field(by="content", converter=lambda f: f, check=callable)
        g: Any = lw.static_field(by="content", freeze=True, default=(1, [2]))
        h: Any = lw.static_field(by="content", default_factory=lambda: lambda: 1)

    one, other = Q(1.0, closing(a=1)), Q(1.0, closing(a=1))
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert hash(jax.tree.structure(one)) == hash(jax.tree.structure(other))
    assert one == other
    assert hash(one) == hash(other)
    assert one.g == (1, (2,))
    assert jax.tree.structure(lw.replace(one, f=closing(a=2))) != jax.tree.structure(one)
    assert jax.tree.map(lambda leaf: leaf, one).f is one.f
    assert jax.tree.map(lambda leaf: leaf, other).f is other.f


def test_transformations() -> None:
    """Instances with rebuilt functions go through scan, vmap, grad, cond and one program."""

    def make() -> P:
        return P(jnp.arange(3.0), closing_scale(2.0))

    def closing_scale(by: float) -> Any:
        return lambda x: by * x

    def apply(p: P) -> Any:
        return lw.replace(p, x=p.f(p.x))

    assert jax.vmap(apply)(make()).x[2] == 4
    assert jax.grad(lambda p: p.f(p.x).sum())(make()).x[0] == 2
    carry, _ = jax.lax.scan(
        lambda p, _: (P(p.f(p.x), closing_scale(2.0)), None), make(), None, length=2
    )
    assert carry.x[1] == 4
    found = jax.lax.cond(True, apply, lambda p: P(p.x, closing_scale(2.0)), make())
    assert found.x[1] == 2
    with pytest.raises(TypeError, match=r"by=2\.0.*by=3\.0"):
        jax.lax.scan(lambda p, _: (P(p.x, closing_scale(3.0)), None), make(), None, length=2)


def test_what_is_said_of_two_functions_that_differ() -> None:
    """`lw.explain` leads to the cell that differs, and says nothing of equal functions."""
    before, after = P(1.0, closing(a=closing(lr=0.1))), P(1.0, closing(a=closing(lr=0.2)))
    found = lw.explain(lw.signature(before), lw.signature(after))
    (reason,) = found.reasons
    assert reason.path == "args[0].f"
    assert (reason.before, reason.after) == (0.1, 0.2)
    assert ".__closure__['a'].__closure__['lr']" in reason.change
    found = lw.explain(lw.signature(before), lw.signature(P(1.0, closing(a=closing(lr=0.1)))))
    assert found.outcome == "reuse"
    assert not found.unsound
    found = lw.explain(lw.signature(P(1.0, recursive(1))), lw.signature(P(1.0, recursive(2))))
    assert "['by']" in found.reasons[0].change


def test_the_advice_for_a_fresh_function() -> None:
    """Where functions compare by identity, comparing by content is named as a fix."""
    fresh = [made("f = lambda x: x") for _ in range(2)]
    before, after = (lw.signature(ByIdentity(1.0, each)) for each in fresh)
    (reason,) = lw.explain(before, after).reasons
    assert 'lw.static_field(by="content")' in reason.fix


def test_the_repr_tells_functions_apart() -> None:
    """A key shows what a function closes over, not its address."""
    text = repr(jax.tree.structure(P(1.0, closing(lr=0.001))))
    assert "lr=0.001" in text
    assert " at 0x" not in text
    assert text == repr(jax.tree.structure(P(1.0, closing(lr=0.001))))


# Travel, threads, memory


def test_pickled_within_a_process() -> None:
    """cloudpickle makes a new function of a lambda; by content it is the same."""
    p = P(1.0, lambda x: 2 * jnp.tanh(x) + len("abc"))
    loaded = cloudpickle.loads(cloudpickle.dumps(p))
    assert loaded.f is not p.f
    assert jax.tree.structure(loaded) == jax.tree.structure(p)


CHILD = """
import sys, pickle, cloudpickle, jax
treedef, p = cloudpickle.loads(sys.stdin.buffer.read())
assert jax.tree.structure(p) == treedef, (jax.tree.structure(p), treedef)
sys.stdout.buffer.write(cloudpickle.dumps((treedef, p)))
"""


@pytest.mark.slow
def test_pickled_to_another_process_and_back() -> None:
    """Instance and structure travel to another process and back, and still agree."""
    p = P(1.0, closing(lr=0.1))
    sent = cloudpickle.dumps((jax.tree.structure(p), p))
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=sent,
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr.decode()
    treedef, back = cloudpickle.loads(done.stdout)
    assert jax.tree.structure(back) == jax.tree.structure(p) == treedef


def test_threads() -> None:
    """Many threads that build equal functions make one key."""
    found: list[Any] = []

    def build() -> None:
        found.extend(structure(closing(a=[1, (2, closing(b=3))])) for _ in range(20))

    threads = [threading.Thread(target=build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 160
    assert all(each == found[0] for each in found)


def test_builtins_are_found_where_no_global_hides_them() -> None:
    """A builtin that a module hides is another function."""
    source = "def f(x): return abs(x)"
    assert same(made(source), made(source, abs=builtins.abs))
    assert not same(made(source), made(source, abs=lambda x: x))
