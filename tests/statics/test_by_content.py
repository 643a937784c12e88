"""`static_field(compare_by="content")`: functions compared by what they are made of."""

import collections
import dataclasses
import functools
import math
import operator
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import leafwise as lw


@lw.pytree
class P:
    x: Any
    f: Any = lw.static_field(compare_by="content")


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


def closing(**cells: Any) -> Any:
    """Return a function that closes over these values."""
    names = ", ".join(cells)
    source = f"def f({names}):\n    def inner(): return ({names},)\n    return inner"
    return made(source)(**cells)


# What is distinct, and what is not


SAME = ("f = lambda x: x in {'a', 'b'}", "\n\nf = lambda x: x in {'b', 'a'}")

OTHERS = {
    "in a set": ("f = lambda x: x in {1, 2}", "f = lambda x: x in {1.0, 2}"),
    "attribute name": ("f = lambda x: x.T", "f = lambda x: x.mT"),
    "kind of parameter": ("def f(x, y): pass", "def f(x, *, y): pass"),
    "inner": ("def f():\n return lambda: 1", "def f():\n return lambda: True"),
    "generator": ("def f(): return 1", "def f(): yield 1"),
}


def test_the_same_source_is_one_key() -> None:
    """Functions made twice from the same text are one key, whatever their lines."""
    one, other = map(made, SAME)
    assert same(one, other)
    assert structure(one, ByIdentity) != structure(other, ByIdentity)


@pytest.mark.parametrize("name", OTHERS)
def test_another_source_is_another_key(name: str) -> None:
    """Whatever the code of two functions does not share distinguishes them."""
    assert not same(*map(made, OTHERS[name]))


class Scale:
    """A callable object without ``==``."""

    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return self.by * x


@dataclasses.dataclass
class Settings:
    """What most users hold their numbers in: it has no hash."""

    by: Any


def mutual(by: Any) -> Any:
    """Return two functions in a tuple that they both close over."""
    both = (lambda n: by if n == 0 else both[1](n - 1), lambda n: both[0](n - 1))
    return both


def with_jvp(by: Any) -> Any:
    """Return a function with a derivative of its own."""
    scale = jax.custom_jvp(times(by))
    scale.defjvp(lambda primals, tangents: (by * primals[0], by * tangents[0]))
    return scale


MAKERS: dict[str, Callable[[Any], Any]] = {
    "optimizer": optax.adam,
    "partial of a lambda": lambda by: functools.partial(lambda by, x: by * x, by),
    "object": Scale,
    "bound method": lambda by: Scale(by).__call__,
    "dataclass in a cell": lambda by: closing(s=Settings(by)),
    "mutual": mutual,
    "custom_jvp": with_jvp,
    "getter": lambda by: operator.itemgetter(by),
    "jax array": lambda by: times(jnp.full(3, by)),
    "defaultdict": lambda by: closing(d=collections.defaultdict(list, a=by)),
    "frozenset of functions": lambda by: frozenset({lambda: by, lambda: (by,)}),
    "dispatching": lambda by: functools.singledispatch(times(by)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_built_twice(name: str) -> None:
    """What is built twice from equal parts is one key and one trace; from others another."""
    make = MAKERS[name]
    by = (1.5, 2.5) if name != "getter" else (1, 2)
    assert same(make(by[0]), make(by[0]))
    assert not same(make(by[0]), make(by[1]))

    @jax.jit
    def program(p: Any) -> Any:
        return p.x + 1

    with lw.budget(traces=2, exact=True, of="program"):
        for value in (by[0], by[0], by[1], by[0], by[1]):
            program(P(1.0, make(value)))


def test_sharing_is_part_of_the_content() -> None:
    """Two cells with one list are not two cells with two lists: a change shows in both."""
    shared = [1]
    assert not same(closing(a=shared, b=shared), closing(a=[1], b=[1]))
    other = [1]
    assert same(closing(a=shared, b=shared), closing(a=other, b=other))


def test_what_is_itself() -> None:
    """Classes, sentinels, and functions that a package has under a name compare by identity."""
    for one, other in ((jax.nn.relu, jax.nn.gelu), (math.sin, math.cos), (np.add, np.multiply)):
        assert same(one, one)
        assert not same(one, other)
    classes = [type("C", (), {"__call__": lambda self: 1}) for _ in range(2)]
    missing = object()
    assert not same(*classes)
    assert not same(*[cls() for cls in classes])
    assert same(classes[0](), classes[0]())
    assert same(closing(m=missing), closing(m=missing))
    assert not same(closing(m=object()), closing(m=object()))


# What code finds by name


def in_module(name: str, **values: Any) -> types.ModuleType:
    """Return a module that is loaded, and no package's."""
    module = sys.modules[name] = types.ModuleType(name)
    vars(module).update(values)
    return module


def cached(rate: int) -> Any:
    """Return a function under `functools.cache` that reads a global, found by its name."""
    module = in_module("cached_of_a_test", rate=rate)
    exec("import functools\n@functools.cache\ndef table(): return rate", vars(module))  # noqa: S102
    return module.table


class Class:
    rate: Any
    other: Any

    @classmethod
    def get(cls) -> Any:
        """Return what the class holds."""
        return cls.rate


def of_class(rate: Any) -> type:
    """Return a class, always the same, with another attribute."""
    Class.rate = rate
    return Class


FOUND: dict[str, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "number": ("f = lambda x: rate * x", lambda v: {"rate": v}),
    "inside": ("f = lambda x: [rate * i for i in map(lambda y: rate, x)]", lambda v: {"rate": v}),
    "key": ("f = lambda x: c['rate'] * x", lambda v: {"c": {"rate": v, "lock": LOCK}}),
    "attribute": ("f = lambda x: c.by * x", lambda v: {"c": Settings(v)}),
    "beside a lock": ("f = lambda x: c.v", lambda v: {"c": types.SimpleNamespace(v=v, u=LOCK)}),
    "import": ("def f():\n import n_of_a_test as n\n return n.rate", lambda v: vars_of(v)),
    "class": ("f = lambda x: c.rate * x", lambda v: {"c": of_class(v)}),
    "method of a class": ("f = lambda x: c.get()", lambda v: {"c": of_class(v)}),
    "under a cache": ("f = lambda x: table() * x", lambda v: {"table": cached(v)}),
    "builtin": ("f = lambda x: abs(x)", lambda v: {"abs": times(v)}),
}


def vars_of(rate: Any) -> dict[str, Any]:
    """Return no names: the module is found by its own."""
    in_module("n_of_a_test", rate=rate)
    return {}


@pytest.mark.parametrize("name", FOUND)
def test_what_code_finds_by_name(name: str) -> None:
    """A function is another key once a name leads to another value, and the same for the same."""
    source, names = FOUND[name]
    first = structure(function := made(source, **names(2)))
    assert structure(function) == first
    if name != "under a cache":  # a cache is itself
        assert structure(made(source, **names(2))) == first
    assert structure(made(source, **names(3))) != first


def test_a_global_that_changed_is_named() -> None:
    """`check_statics` says which of the names that the code finds leads to another value."""
    holder = P(1.0, function := made("f = lambda x: x * rate", rate=2))
    with lw.debug.check_statics():
        function.__globals__["rate"] = 3
        with pytest.raises(lw.errors.StaticMutatedError, match=r"^P\.f\.__globals__\['rate'\]: "):
            jax.tree.leaves(holder)


def test_what_is_not_read_makes_no_difference() -> None:
    """Neither other attributes of a module or a class, nor what is only written to, count."""
    module, log = in_module("m_of_a_test", rate=2), [1]
    function = made("def f():\n log.append(m.rate * c.rate)", m=module, c=of_class(2), log=log)
    first = P(1.0, function)
    before = jax.tree.structure(first)
    module.other = Class.other = 1  # type: ignore[attr-defined]
    function()
    with lw.debug.check_statics():
        assert structure(function) == before == jax.tree.structure(first)


def test_a_global_that_cannot_be_compared_is_itself() -> None:
    """A lock or a file under a global name does not forbid anything."""
    source = "def f(x):\n    with lock: return x"
    assert same(made(source, lock=LOCK), made(source, lock=LOCK))
    assert not same(made(source, lock=LOCK), made(source, lock=threading.Lock()))


def test_code_that_sees_all_globals() -> None:
    """A function that can read globals without naming them is one with its module only."""
    source = "def f(): return globals()['a']"
    assert not same(made(source), made(source))
    function = made(source)
    assert same(function, types.FunctionType(function.__code__, function.__globals__, "f"))


# What is refused


def counting() -> Callable[[], int]:
    """Return a function that changes its own cell."""
    n = 0

    def count() -> int:
        nonlocal n
        n += 1
        return n

    return count


LOCK = threading.Lock()

REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "lock": (lambda: closing(mu=threading.Lock()), r"P\.f\.__closure__\['mu'\]", "lock"),
    "local cache": (lambda: functools.cache(lambda: 1), r"P\.f:", "lru_cache"),
    "large array": (lambda: closing(a=jnp.zeros(1 << 15)), r"__closure__\['a'\]", "64 KiB"),
    "own cell": (counting, r"P\.f:", "assigns 'n'"),
    "own global": (lambda: made("def f():\n global n\n n = 1"), r"P\.f:", "assigns 'global n'"),
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


def test_a_list_beside_a_function() -> None:
    """What a function closes over is read with it; what is beside it needs a hash."""
    assert P(1.0, (closing(found=[1]),)).x == 1.0
    with pytest.raises(lw.errors.StaticFieldError, match=r"P\.f\[1\]: a list"):
        P(1.0, (closing(found=[1]), [1]))


# Changes in place


def cell(function: Any) -> Any:
    """Return the first cell of a function."""
    return function.__closure__[0]


def fresh(source: str) -> Callable[[], Any]:
    """Return what makes a function of this source."""
    return lambda: made(source)


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "cell": (lambda: closing(a=1), lambda f: setattr(cell(f), "cell_contents", 2)),
    "deleted cell": (lambda: closing(a=1), lambda f: delattr(cell(f), "cell_contents")),
    "list": (lambda: closing(a=[1]), lambda f: cell(f).cell_contents.append(2)),
    "dict": (lambda: closing(a={"b": {}}), lambda f: cell(f).cell_contents["b"].update(c=2)),
    "array": (lambda: closing(a=np.ones(2)), lambda f: cell(f).cell_contents.__setitem__(0, 2)),
    "defaults": (fresh("def f(x=1): pass"), lambda f: setattr(f, "__defaults__", (True,))),
    "code": (
        fresh("f = lambda: 1"),
        lambda f: setattr(f, "__code__", made("f = lambda: 2").__code__),
    ),
    "object": (lambda: Scale(1), lambda f: setattr(f, "by", 2)),
    "implementation": (
        lambda: functools.singledispatch(times(1)),
        lambda f: f.register(int, times(2)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_in_place_is_seen_at_the_next_flatten(name: str) -> None:
    """An instance whose function changed is refused when it is next used; a new one is new."""
    make, change = CASES[name]
    p = P(1.0, function := make())
    before = jax.tree.structure(p)
    assert jax.tree.structure(p) == before
    change(function)
    path = r"P\.f\.__closure__\['a'\] was 1, now 2" if name == "cell" else "P.f.*changed in place"
    with pytest.raises(lw.errors.StaticMutatedError, match=path):
        jax.tree.structure(p)
    with pytest.raises(lw.errors.StaticMutatedError, match=r"P\.f"), lw.debug.check_statics():
        jax.tree.structure(p)
    assert structure(function) != before


# Fields and classes


def test_by_takes_two_words() -> None:
    """Any other word is refused, with both that there are."""
    with pytest.raises(TypeError, match=r"compare_by='value'.*'identity'.*'content'"):
        lw.static_field(compare_by="value")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(TypeError):
        lw.field(compare_by="content")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def test_each_field_in_its_own_way() -> None:
    """Two fields may compare in two ways; a subclass inherits that, or says otherwise."""

    @lw.pytree
    class Mixed(P):
        g: Any = lw.static_field()

    @lw.pytree
    class Other(P):
        f: Any = lw.static_field()

    one, other = (made("f = lambda x: x") for _ in range(2))
    first = jax.tree.structure(Mixed(1.0, one, one))
    assert jax.tree.structure(Mixed(1.0, other, one)) == first
    assert jax.tree.structure(Mixed(1.0, one, other)) != first
    assert structure(one, Other) != structure(other, Other)


@pytest.mark.parametrize("options", [{}, {"slots": True}, {"many_statics": True}])
def test_options_of_classes_and_fields(options: dict[str, Any]) -> None:
    """Slots, `many_statics`, converters, checks, freezing and defaults go with it."""

    @lw.pytree(**options)
    class Q:
        x: Any
        f: Any = lw.static_field(compare_by="content", converter=lambda f: f, validator=callable)
        g: Any = lw.static_field(compare_by="content", freeze=True, default=(1, [2]))
        h: Any = lw.static_field(compare_by="content", default_factory=lambda: lambda: 1)

    one, other = Q(1.0, closing(a=1)), Q(1.0, closing(a=1))
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert one == other
    assert hash(one) == hash(other)
    assert one.g == (1, (2,))
    assert jax.tree.structure(lw.replace(one, f=closing(a=2))) != jax.tree.structure(one)
    assert jax.tree.map(lambda leaf: leaf, other).f is other.f


def test_what_is_said_of_two_functions_that_differ() -> None:
    """The explanation leads to the cell that differs; by identity it names the other way."""

    def signature(rate: float) -> Any:
        return lw.signature(P(1.0, closing(a=closing(lr=rate))))

    (reason,) = signature(0.2).explain(signature(0.1)).reasons
    assert (reason.path, reason.before, reason.after) == ("args[0].f", 0.1, 0.2)
    assert ".__closure__['a'].__closure__['lr']" in reason.change
    found = signature(0.1).explain(signature(0.1))
    assert found.outcome == "reuse"
    assert not found.unsound

    one, two = (lw.signature(ByIdentity(1.0, made("f = lambda x: x"))) for _ in range(2))
    assert 'lw.static_field(compare_by="content")' in str(two.explain(one).reasons[0].fix)


def test_pickled_within_a_process() -> None:
    """cloudpickle makes a new function of a lambda; by content it is the same."""
    p = P(1.0, lambda x: 2 * jnp.tanh(x) + len("abc"))
    loaded = cloudpickle.loads(cloudpickle.dumps(p))
    assert loaded.f is not p.f
    assert jax.tree.structure(loaded) == jax.tree.structure(p)


def test_the_repr_distinguishes_functions() -> None:
    """A key shows what a function closes over, not its address."""
    text = repr(structure(closing(lr=0.001)))
    assert "lr=0.001" in text
    assert " at 0x" not in text
    assert text == repr(structure(closing(lr=0.001)))
