"""Statics that change in place after a key was made from them."""

import dataclasses
import functools
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

import leafwise as lw

from .judge import Plain, Sound

pytestmark = pytest.mark.hazard

SOURCE = Path(__file__).parents[2] / "src"


class Valued:
    """Compares by value, and can change."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Valued) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def read(self) -> Any:
        return self.value


class PlainObject:
    """Compares by identity, and can change."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def read(self) -> Any:
        return self.value


@dataclasses.dataclass(frozen=True)
class Config:
    value: Any

    def read(self) -> Any:
        return self.value


def change_attribute(target: Any) -> None:
    target.value = 2


def change_frozen(target: Any) -> None:
    object.__setattr__(target, "value", 2)


def make_closure() -> Any:
    value = 1

    def read() -> Any:
        return value

    def change() -> None:
        nonlocal value
        value = 2

    read.change = change
    return read


def make_default() -> Any:
    def read(value: int = 1) -> Any:
        return value

    return read


def make_keyword_default() -> Any:
    def read(*, value: int = 1) -> Any:
        return value

    return read


def change_default(function: Any) -> None:
    function.__defaults__ = (2,)


def change_keyword_default(function: Any) -> None:
    function.__kwdefaults__["value"] = 2


def make_list_closure() -> Any:
    values = [1]
    return lambda: values[-1]


def change_list_closure(function: Any) -> None:
    function.__closure__[0].cell_contents.append(2)


# How to make a static, how it reads, how it changes.
Case = tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], None]]

# leafwise sees these at the next construction.
SEEN: dict[str, Case] = {
    "valued": (lambda: Valued(1), lambda s: s.read(), change_attribute),
    "valued-in-tuple": (
        lambda: (0, Valued(1)),
        lambda s: s[1].read(),
        lambda s: change_attribute(s[1]),
    ),
    "frozen-dataclass": (lambda: Config(1), lambda s: s.read(), change_frozen),
    "valued-in-frozen": (
        lambda: Config(Valued(1)),
        lambda s: s.read().read(),
        lambda s: change_attribute(s.value),
    ),
    "valued-receiver": (
        lambda: Valued(1).read,
        lambda s: s(),
        lambda s: change_attribute(s.__self__),
    ),
    "partial-keyword": (
        lambda: functools.partial(dict, value=1),
        lambda s: s()["value"],
        lambda s: s.keywords.update(value=2),
    ),
    "partial-over-valued": (
        lambda: functools.partial(Valued.read, Valued(1)),
        lambda s: s(),
        lambda s: change_attribute(s.args[0]),
    ),
}
# These compare by identity, so that only looking inside can tell.
HIDDEN: dict[str, Case] = {
    "object": (lambda: PlainObject(1), lambda s: s.read(), change_attribute),
    "object-in-tuple": (
        lambda: (0, (PlainObject(1),)),
        lambda s: s[1][0].read(),
        lambda s: change_attribute(s[1][0]),
    ),
    "object-in-frozen": (
        lambda: Config(PlainObject(1)),
        lambda s: s.value.read(),
        lambda s: change_attribute(s.value),
    ),
    "receiver": (
        lambda: PlainObject(1).read,
        lambda s: s(),
        lambda s: change_attribute(s.__self__),
    ),
    "partial-over-object": (
        lambda: functools.partial(PlainObject.read, PlainObject(1)),
        lambda s: s(),
        lambda s: change_attribute(s.args[0]),
    ),
    "closure": (make_closure, lambda s: s(), lambda s: s.change()),
    "closure-list": (make_list_closure, lambda s: s(), change_list_closure),
    "default": (make_default, lambda s: s(), change_default),
    "keyword-default": (make_keyword_default, lambda s: s(), change_keyword_default),
    "list-in-object": (
        lambda: PlainObject([1]),
        lambda s: s.value[-1],
        lambda s: s.value.append(2),
    ),
}


def program_of(read: Callable[[Any], Any]) -> Any:
    return jax.jit(lambda p: p.x * read(p.s))


@pytest.mark.parametrize("kind", SEEN)
def test_a_new_instance_from_a_changed_static(kind: str) -> None:
    """Constructing from an object that changed since raises at once, naming the field."""
    make, read, change = SEEN[kind]
    static = make()
    program = program_of(read)
    kept = Sound(1.0, static)
    assert program(kept) == 1
    change(static)
    assert read(static) == 2
    with pytest.raises(lw.errors.StaticMutatedError, match=r"Sound\.s"):
        Sound(1.0, static)
    assert isinstance(kept, Sound)


def test_a_change_that_keeps_the_hash() -> None:
    """``hash(-1)`` is ``hash(-2)``: a change from one to the other is refused, or seen."""
    static = Config(-1)
    before = Sound(1.0, static)
    structure = jax.tree.structure(before)
    object.__setattr__(static, "value", -2)
    try:
        after = Sound(1.0, static)
    except lw.errors.StaticMutatedError:
        return
    assert jax.tree.structure(after) != structure
    assert jax.tree.structure(after) == jax.tree.structure(Sound(1.0, Config(-2)))


@pytest.mark.parametrize("kind", SEEN)
def test_a_changed_static_is_itself_once_its_keys_are_gone(kind: str) -> None:
    """With nothing left that knew it before, the object is what it is now."""
    make, read, change = SEEN[kind]
    static = make()
    Sound(1.0, static)
    change(static)
    jax.clear_caches()
    program = program_of(read)
    assert program(Sound(1.0, static)) == 2


@pytest.mark.parametrize("kind", SEEN | HIDDEN)
def test_plain_jax_answers_for_the_old_content(kind: str) -> None:
    """The hazard: one object, changed, and the old program answers."""
    make, read, change = (SEEN | HIDDEN)[kind]
    static = make()
    program = program_of(read)
    assert program(Plain(1.0, static)) == 1
    change(static)
    assert program(Plain(1.0, static)) == 1


@pytest.mark.parametrize("kind", SEEN | HIDDEN)
@pytest.mark.parametrize("again", ["same instance", "new instance"])
def test_check_statics_sees_every_change(kind: str, again: str) -> None:
    """In `check_statics` the next flatten after a change raises, and names the field."""
    make, read, change = (SEEN | HIDDEN)[kind]
    static = make()
    program = program_of(read)
    instance = Sound(1.0, static)
    with lw.debug.check_statics():
        assert program(instance) == 1
        change(static)
        with pytest.raises(lw.errors.StaticMutatedError, match=r"Sound\.s"):
            program(instance if again == "same instance" else Sound(1.0, static))
    del instance


@pytest.mark.parametrize("kind", SEEN | HIDDEN)
def test_check_statics_is_quiet_without_changes(kind: str) -> None:
    """Nothing is said of statics that stay as they are, also when they are used."""
    make, read, _ = (SEEN | HIDDEN)[kind]
    static = make()
    program = program_of(read)
    with lw.debug.check_statics():
        for _ in range(3):
            assert program(Sound(1.0, static)) == 1
            assert program(Sound(2.0, make())) == 2
            read(static)


def test_check_statics_is_quiet_about_a_logger() -> None:
    """It keeps which levels are on in a dict, filled when asked for, and configures nothing."""

    class Logged:
        def __init__(self) -> None:
            self.log = logging.getLogger("leafwise.tests.logged")

        def __call__(self, x: Any) -> Any:
            self.log.debug("traced")
            return x

    instance = Sound(1.0, Logged())
    with lw.debug.check_statics():
        for _ in range(3):
            assert program_of(lambda static: static(1))(instance) == 1


def test_check_statics_is_off_outside_of_its_blocks() -> None:
    """Outside, an identity-compared static is trusted; blocks nest."""
    static = PlainObject(1)
    instance = Sound(1.0, static)
    with lw.debug.check_statics():
        with lw.debug.check_statics():
            jax.tree.leaves(instance)
        static.value = 2
        with pytest.raises(lw.errors.StaticMutatedError):
            jax.tree.leaves(instance)
        with pytest.raises(lw.errors.StaticMutatedError):
            jax.tree.leaves_with_path(instance)
    assert jax.tree.leaves(instance) == [1.0]


@pytest.mark.slow
def test_check_statics_by_environment_variable() -> None:
    """``LEAFWISE_CHECK_STATICS=1`` turns it on for a whole process."""
    code = """
import jax, leafwise as lw

class Thing: pass

@lw.pytree
class P:
    x: object
    s: object = lw.static_field()

thing = Thing()
thing.value = 1
p = P(1.0, thing)
jax.tree.leaves(p)
thing.value = 2
try:
    jax.tree.leaves(p)
except lw.errors.StaticMutatedError as error:
    print(error)
"""
    for value, expected in (("1", "P.s"), ("0", ""), ("", "")):
        path = os.pathsep.join([str(SOURCE), *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path, "LEAFWISE_CHECK_STATICS": value},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(expected) if expected else done.stdout == ""


def test_jit_of_a_method_is_right() -> None:
    """``jax.jit(p.method)`` answers for this instance, whichever were asked before."""

    @lw.pytree
    class Layer:
        x: Any
        s: Any = lw.static_field()

        def apply(self, y: Any) -> Any:
            return self.x * y + len(self.s)

    one = Layer(1.0, "a")
    alive = [one.apply]
    for instance, y, expected in (
        (one, 2.0, 3),
        (Layer(1.0, "a"), 2.0, 3),
        (Layer(1.0, "ab"), 2.0, 4),
        (Layer(1.0, "a"), 3.0, 4),
        (Layer(True, "a"), 2.0, 3),
        (lw.replace(one, x=3.0), 2.0, 7),
    ):
        alive.append(instance.apply)
        for _ in range(2):
            assert jax.jit(alive[-1])(y) == expected
            assert jax.jit(instance.apply)(y) == expected


def test_plain_jit_of_a_method_goes_stale() -> None:
    """The hazard: a value-equal receiver that has changed gets the program of the old one."""
    static = Valued(1)
    assert jax.jit(static.read)() == 1
    static.value = 2
    assert jax.jit(Valued(1).read)() == 1
    program = jax.jit(static.read)
    assert program() == 2
    static.value = 3
    assert program() == 2
