"""Each kind of fix that `leafwise check` prints, applied to the class that provoked it."""

import dataclasses
import re
import sys

import jax
import pytest
from tests.kit.inside import CheckOptions, check_class, find_targets

from leafwise.testing import Law

from .conftest import Write

TOOLS = """\
import dataclasses
import functools
import math
import sys
import typing
import hypothesis.strategies
from typing import NamedTuple
"""
BOX = """
@jax.tree_util.register_pytree_with_keys_class
class Box:
    leaves = ("x", "y")
    keys = ["x", "y"]
    def __init__(self, x: jax.Array, y: jax.Array, n: int = 2):
        self.x, self.y, self.n = x, y, n
    def tree_flatten(self):
        return [getattr(self, name) for name in self.leaves], (self.n, type(self.n))
    def tree_flatten_with_keys(self):
        children, aux = self.tree_flatten()
        return tuple(zip(map(jax.tree_util.GetAttrKey, self.keys), children)), aux
    @classmethod
    def tree_unflatten(cls, aux, children):
        self = object.__new__(cls)
        vars(self).update(zip(cls.leaves, children), n=aux[0])
        return self
    def replace(self, **changes):
        return Box(**{**vars(self), **changes})
    def __reduce__(self):
        return Box, (self.x, self.y, self.n)
"""
KEY = "(self.n, type(self.n))"
AUX = """
class Aux:
    def __init__(self, *key): self.key = key
    def __getitem__(self, place): return self.key[place]
    def __eq__(self, other): return self.key == other.key
    def __hash__(self): return hash(self.key)
"""
NAME = """
class Name:
    def __init__(self, text: str): self.text = text
    def __eq__(self, other): return type(other) is Name and self.text == other.text
    def __hash__(self): return hash(self.text)
"""
REGISTER = "jax.tree_util.register_pytree_with_keys_class"
SMALL = BOX.replace("return Box(", "return type(self)(") + f"@{REGISTER}\nclass Small(Box): pass\n"
FLOAT = BOX.replace("n: int", "n: float").replace(KEY, "(type(self.n), str(self.n))")
RIGHT = (
    BOX,
    FLOAT.replace("aux[0]", "aux[0](aux[1])"),
    AUX + BOX.replace(KEY, f"Aux{KEY}"),
    NAME + BOX.replace("n: int = 2", "n: Name"),
    SMALL,
)
"""Classes that keep each law."""

# The law, the words of its fix, and the edit that they name: what is there afterwards, and before.
IN_WORDS = """
round-trip: convert nothing in flatten
    getattr(self, name)    <-  getattr(self, name) * 1
round-trip: restore in unflatten all that it returned, in order
    children), n=    <-  reversed(children)), n=
round-trip: return the children from flatten as they are
    getattr(self, name)    <-  getattr(self, name)[0, 0]
any-leaf: `object.__new__(cls)`, and set attributes without checks
    object.__new__(cls)    <-  cls(*map(jnp.asarray, children))
any-leaf: build aux_data from the statics alone
    (self.n, type(self.n))    <-  (self.n, id(self.x))
any-leaf: return the same children and aux_data where a child is None
    (self.n, type(self.n))    <-  (self.n, type(self.n), self.x is None)
any-leaf: decide by field, not by value
    in self.leaves]    <-  in self.leaves if hasattr(self.x, "shape")]
identity-map: pass leaves through flatten and unflatten unchanged
    children), n=    <-  map(jnp.negative, children)), n=
identity-map: restore class and statics in unflatten
    n=aux[0]    <-  n=aux[0] + 1
identity-map: as they are: what flatten creates, such as a lambda
    (self.n, type(self.n))    <-  (self.n, lambda: 0)
treedef-equality: a tuple of hashable, comparable values; arrays are children
    (self.n, type(self.n))    <-  (self.n, np.ones(2))
treedef-equality: let == of statics be symmetric
    self.key == other.key    <-  self.key[0] >= other.key[0]
static-values: put every static into aux_data
    (self.n, type(self.n))    <-  (2,)
static-values: compare statics by value
    self.key == other.key    <-  self is other
static-types: a float as `str(x)`: 0.0
    str(self.n)    <-  self.n.__float__()
static-types: and NaN not itself
    str(self.n)    <-  float(self.n), math.copysign(1.0, self.n)
aux-data-hash: tuples for lists
    (self.n, type(self.n))    <-  [self.n]
aux-data-hash: hash what == compares
    hash(self.key)    <-  id(self)
aux-data-hash: hash all that == compares
    hash(self.key)    <-  1
stable-treedef: no caches, no new objects
    (self.n, type(self.n))    <-  (self.n, object())
key-paths: `jax.tree_util.GetAttrKey('y')`
    keys = ["x", "y"]    <-  keys = ["x", "z"]
key-paths: `jax.tree_util.GetAttrKey('x')`
    keys = ["x", "y"]    <-  keys = ["n", "y"]
key-paths: return the children with keys in the order of those without
    children)), aux    <-  children))[::-1], aux
key-paths: return the same aux_data with keys
    children)), aux    <-  children)), [*aux]
key-paths: give each child a key of its own
    keys = ["x", "y"]    <-  keys = ["x", "x"]
copies: let `__reduce__`
    Box, (self.x, self.y, self.n)    <-  Box, (self.x, self.y)
fresh-process: let `__reduce__`
    Box, (self.x, self.y, self.n)    <-  Box, (self.x,)
fresh-process: register the class in the module that defines it
    @jax    <-  @(lambda cls: cls) if not hasattr(sys, "asks") else jax
fresh-process: pickle no hash
    hash(self.text)    <-  vars(self).setdefault("hash", hash(self.text))
transformations: without checks or conversion
    children), n=    <-  map(jnp.asarray, children)), n=
transformations: restore class and statics in unflatten
    n=aux[0]    <-  n=aux[0] if type(children[0]) is object else 7
transformations: pass leaves through flatten and unflatten unchanged
    children), n=    <-  [x + 1 if isinstance(x, jax.Array) else x for x in children]), n=
transformations: build aux_data from the statics alone
    (self.n, type(self.n))    <-  (self.n, type(self.n), str(self.x))
no-tracer-leaks: no class attributes
    return self    <-  cls.last = self; return self
replace: start from the values of all fields
    **vars(self), **changes    <-  "x": self.x, "y": self.y, **changes
replace: let it return a `type(self)`
    return type(self)(    <-  return Box(
no-hidden-state: make it a child or a static
    ("x", "y")    <-  ("x",)
recompilation: keep it out of the aux_data
    (self.n, type(self.n))    <-  (self.n, str(self.x))
"""
AT_NIGHT = (
    "compare statics by value",
    "pickle no hash",
    "no class attributes",
    "and NaN not itself",
)


@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark this process, which asks the fresh one."""
    monkeypatch.setattr(sys, "asks", True, raising=False)


def look(write: Write, code: str, law: str = "") -> tuple[bool, str]:
    """Check the last class of a module; return whether there is a finding, and what is printed."""
    (*_, target) = find_targets([write(TOOLS + code)]).targets
    laws = (Law(law),) if law else ()
    report = check_class(target, CheckOptions(laws=laws, fields=not laws, examples=5))
    broken = [each.message for each in report.laws if each.verdict != "ok"]
    return bool(report.error or broken), report.error + "\n".join(broken)


@pytest.mark.parametrize(
    ("law", "words", "good", "bad"),
    [
        pytest.param(
            *row, id=": ".join(row[:2]), marks=[pytest.mark.nightly] * (row[1] in AT_NIGHT)
        )
        for row in re.findall(r"(\S+): (.*)\n    (.*?)    <-  (.*)\n", IN_WORDS)
    ],
)
@pytest.mark.usefixtures("asks")
def test_in_words(law: str, words: str, good: str, bad: str, write: Write) -> None:
    """The edit that the words name is all that the class needs."""
    right = next(each for each in RIGHT if good in each)
    found, text = look(write, right.replace(good, bad), law)
    assert found
    assert words in text.partition("fix: ")[2]
    assert not look(write, right, law)[0]


def test_a_hash_that_is_kept(write: Write) -> None:
    """It is found with all laws, too, of which most ask for the hash."""
    kept = 'vars(self).setdefault("hash", hash(self.text))'
    code = TOOLS + NAME.replace("hash(self.text)", kept) + BOX.replace("n: int = 2", "n: Name")
    report = check_class(find_targets([write(code)]).targets[-1], CheckOptions(fields=False))
    assert [each.law for each in report.laws if each.verdict != "ok"] == ["fresh-process"]


# The library, the laws that it breaks, and a class of it.
LIBRARIES = """\
# jax: static-types aux-data-hash post-init distinct-classes
@jax.tree_util.register_dataclass
@dataclasses.dataclass
class P:
    x: jax.Array
    n: int = dataclasses.field(default=2, metadata={"static": True})
    sizes: list[int] = dataclasses.field(default_factory=list, metadata={"static": True})
    def __post_init__(self): pass
# flax: static-types distinct-classes
import flax
@flax.struct.dataclass
class P:
    x: jax.Array
    n: int = flax.struct.field(pytree_node=False, default=2)
assert P(x=0.0).replace(n=3).n == 3
# chex: post-init
import chex
@chex.dataclass
class P:
    x: jax.Array
    def __post_init__(self): pass
assert P(x=0.0).x == 0
# equinox: static-types aux-data-hash stable-treedef
import equinox as eqx
class P(eqx.Module):
    x: jax.Array
    n: int = eqx.field(static=True, default=2)
    sizes: list[int] = eqx.field(static=True, default_factory=list)
    @functools.cached_property
    def area(self): return 3
assert P(0.0).x == 0
# jax_dataclasses: static-types
import jax_dataclasses as jdc
@jdc.pytree_dataclass
class P:
    x: jax.Array
    n: jdc.Static[int] = 2
"""
if jax.__version_info__ < (0, 10):  # which compares the classes, too
    LIBRARIES = LIBRARIES.replace(" distinct-classes", "")
_SECTION = re.compile(r"# (.*): ?(.*)\n((?:[^#].*\n)*)")


@pytest.mark.parametrize(("library", "laws", "code"), _SECTION.findall(LIBRARIES))
def test_what_a_library_does_not_promise(library: str, laws: str, code: str, write: Write) -> None:
    """It is a warning in words of the library, and a failure with `--warnings-as-errors`."""
    (*_, target) = find_targets([write(TOOLS + code)]).targets
    options = CheckOptions(laws=tuple(map(Law, laws.split())), fields=False, examples=5)
    report = check_class(target, options)
    assert report.passed
    found = {each.law for each in report.warnings}
    assert set(laws.split()) - found <= {"stable-treedef"}  # a newer equinox keeps caches aside
    for each in report.warnings:
        assert "aux_data" not in each.message.partition("fix: ")[2]
        assert each.library == report.library
    strict = check_class(target, dataclasses.replace(options, warnings_as_errors=True))
    assert (strict.passed, strict.warnings) == (False, ())


@pytest.mark.parametrize(
    ("library", "law", "code"),
    [(name, law, each) for name, laws, each in _SECTION.findall(LIBRARIES) for law in laws.split()],
)
def test_in_the_spelling_of_leafwise(library: str, law: str, code: str, write: Write) -> None:
    """The class is declared as is said, or its static is of a type that has a hash."""
    if law != "aux-data-hash":  # a list is refused, with a fix of its own
        code = re.sub(r"    sizes: .*\n", "", code)
    found, text = look(write, code, law)
    if not found and law == "stable-treedef":
        pytest.skip("this equinox keeps caches aside")
    fix = text.partition("fix: ")[2]
    if law == "aux-data-hash":
        assert "a tuple for a list" in fix
        (kind,) = re.findall(", and declare it `(.*)`\n", fix)
        code = code.replace("list[int]", kind).replace("=list", "=tuple")
    else:
        how, *fields = re.findall("`([^`]+)`", fix)
        head = "@lw.pytree\nclass P:\n"
        if not how.startswith("@"):
            head = f"from {how.rpartition('.')[0]} import Module\nclass P(Module):\n"
        code = re.sub(r"(@(?!func).*\n)*class P\b.*\n", head, code)
        for field in fields:
            code = re.sub(rf"    {field.partition(':')[0]}: .*", f"    {field}", code)
    if ".replace(" in code:
        code = "\n".join(each for each in code.splitlines() if ".replace(" not in each)
    assert not look(write, code, law)[0]


# A title, the law or none for a class that is not checked, and the class: what follows ` -> ` takes
# the place of its line, {0} being the first piece of code in the fix.
IN_CODE = """\
# a text:
@jax.tree_util.register_dataclass
@dataclasses.dataclass
class P:
    x: jax.Array
    name: str = 'a'  # -> {0}
    y: float = 2.0
# a text of flax:
from flax import struct
@struct.dataclass
class P:
    x: jax.Array
    name: str = 'a'  # -> {0}
# a text of nnx:
from flax import nnx
class P(nnx.Module):
    def __init__(self, x: jax.Array):
        self.x = nnx.Param(x)
        name = "a"
        self.name = nnx.data(name)  # -> {0}
# texts in a list:
@jax.tree_util.register_dataclass
@dataclasses.dataclass
class P:
    x: jax.Array
    names: list[str] = dataclasses.field(default_factory=lambda: ["a"])  # -> {0}
# a text in a part:
class Q(NamedTuple):  # -> @lw.pytree class Q:
    x: jax.Array
    name: str = 'a'  # -> {0}
@lw.pytree
class P:
    q: Q
# hidden: no-hidden-state
@lw.pytree
class P:
    x: jax.Array  # -> x: jax.Array; {0}
    def __post_init__(self):
        object.__setattr__(self, 'scale', 2.0)
# a field for a type: no-hidden-state
@jax.tree_util.register_dataclass
@dataclasses.dataclass
class P:
    x: jax.Array
    n: dataclasses.field(default=2)  # -> n: int = dataclasses.field(default=2)
# endless:
@lw.pytree
class P:
    x: jax.Array
    inner: "P"  # -> inner: "P | None" = None
# for type checkers:
if typing.TYPE_CHECKING:  # -> if True:
    from collections.abc import Sequence
@lw.pytree
class P:
    sizes: lw.Static["tuple[Sequence, int]"]
# a strategy:
class Unit:
    def __init__(self, *parts): assert parts
any  # -> {0}
@lw.pytree
class P:
    unit: lw.Static[Unit]
"""


@pytest.mark.parametrize(
    ("law", "code"),
    [pytest.param(law, code, id=title) for title, law, code in _SECTION.findall(IN_CODE)],
)
def test_in_code(law: str, code: str, write: Write) -> None:
    """The code that is printed, in the place that the message names."""
    found, text = look(write, code, law)
    assert found
    fix = text.partition("fix: ")[2]
    assert ("a tuple for a list" in fix) == ("list[" in code)
    pieces = re.findall("`([^`]+)`|next to (?:the class|its type):\n +(.*)", fix)
    pieces.sort(key=lambda each: not each[1])
    code = re.sub(r"\S.*  # -> ", "", code).replace("class Q", "\nclass Q")
    code = code.replace("{0}", "".join(pieces[0]) if "{0}" in code else "")
    code = code.replace("list[str]", "tuple[str, ...]").replace('["a"]', '("a",)')
    code = code.replace("(Unit, ...)", "(Unit, hypothesis.strategies.just(Unit(1)))")
    assert not look(write, code, law)[0]


@pytest.mark.parametrize(
    ("flat", "words", "ours"),
    [
        (
            "from flax import struct\n@struct.dataclass",
            "`from leafwise.interop.flax import struct` in place of flax's",
            "from leafwise.interop.flax import struct\n@struct.dataclass",
        ),
        (
            "@jax.tree_util.register_dataclass\n@dataclasses.dataclass",
            "declare P with `@lw.pytree`",
            "@lw.pytree",
        ),
    ],
    ids=["flax", "jax"],
)
def test_a_conversion_at_unflatten(flat: str, words: str, ours: str, write: Write) -> None:
    """The code that raised is named with its line, no file of leafwise, and both ways out work."""
    body = "\nclass P:\n    x: jax.Array\n    def __post_init__(self): float(self.x.sum())\n"
    found, text = look(write, flat + body)
    assert found
    assert f"fix: leave `float(self.x.sum())` out of `__post_init__`, or {words}\n" in text
    assert re.search(r"raised in \S+\.py, line \d+\n", text)
    assert "travel.py" not in text
    for right in (flat + body.replace("float(self.x.sum())", "..."), ours + body):
        assert not look(write, right, "any-leaf")[0]
        assert not look(write, right, "transformations")[0]


def test_by_hand(write: Write) -> None:
    """What `tree_flatten` is to leave out, and what is to register the class instead."""
    head = "@dataclasses.dataclass(init=False)\nclass Box:\n    n: str"
    code = BOX.replace("n: int = 2", "n: str").replace("class Box:", head)
    found, text = look(write, code.replace('"x", "y"', '"x", "y", "n"'))
    assert found
    assert "fix: make it static: return it from tree_flatten in the aux_data" in text
    assert not look(write, code)[0]
    assert (
        "; or register it with `@lw.pytree` alone"
        in look(write, code.replace(KEY, "()"), "round-trip")[1]
    )


INHERITED = """
@dataclasses.dataclass
class Base:
    x: jax.Array
    n: int = dataclasses.field(default=2, metadata={"static": True})
@dataclasses.dataclass
class P(Base):
    y: float = 1.0
    children = ["x", "y"]
    statics = ["n"]
    def flatten(self):
        return tuple([getattr(self, name) for name in x] for x in (self.children, self.statics))
    @classmethod
    def unflatten(cls, statics, children):
        self = object.__new__(cls)
        vars(self).update(zip(cls.children + cls.statics, [*children, *statics]))
        return self
"""
METHODS = (
    "    tree_flatten, tree_unflatten = flatten, unflatten\njax.tree_util.register_pytree_node"
)
FUNCTIONS = "jax.tree_util.register_pytree_node(P, P.flatten, P.unflatten)"


@pytest.mark.parametrize(
    ("registered", "words"),
    [
        (f"{METHODS}_class(P)", "the children, and put it into the aux_data that tree_flatten ret"),
        (FUNCTIONS, "the children, and put it into the aux_data where P is registered"),
    ],
)
def test_a_static_among_the_children(registered: str, words: str, write: Write) -> None:
    """It is declared, by a base, so that it is the flatten that is to change."""
    right = INHERITED + registered
    wrong = right.replace('["x", "y"]', '["x", "y", "n"]').replace('= ["n"]', "= []")
    found, text = look(write, wrong, "no-hidden-state")
    assert found
    assert f"leave it out of {words}" in text.partition("fix: ")[2]
    assert not look(write, right, "no-hidden-state")[0]
