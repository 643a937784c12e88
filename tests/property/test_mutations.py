"""A change in place of whatever a static value may hold is found, and named by its path."""

import collections
import functools
import types
from typing import Any

import jax
import numpy as np
import pytest
from tests.objects.samples import Config, Plain, Slotted, Text, function, with_attributes

import leafwise as lw

from .zoo import Own


@lw.pytree
class Params:
    x: Any
    s: lw.Static[Any]


def plain(rate: Any, name: Any = 0) -> Plain:
    """Return an object that compares by identity."""
    made: Plain = with_attributes(Plain(), rate=rate, name=name)
    return made


# What differs in content alone is in `tests/objects/samples.py`; here each change is in place.
CHANGES = [
    # In objects and records.
    (lambda: plain(1), "v.rate = True", ".rate"),
    (lambda: plain(1), "v.other = 3", ""),
    (lambda: plain(1), "del v.rate", ""),
    (lambda: plain(plain(1, 2)), "v.rate.name = 3", ".rate.name"),
    (lambda: plain([plain((plain(1),))]), "v.rate[0].rate[0].rate = 2", ".rate[0].rate[0]"),
    (lambda: Slotted(1, 2), "v.rate = True", ".rate"),
    (lambda: Slotted(1, [2]), "v._Slotted__hidden.append(3)", "._Slotted__hidden"),
    (lambda: Own(1, 1), "v.comment = True", ".comment"),
    (lambda: with_attributes(Text("t"), unit=plain(1)), "v.unit.rate = 2", ".unit.rate"),
    (lambda: Config(plain([1])), "v.rate.rate[0] = True", ".rate.rate[0]"),
    (lambda: Config(1, plain([1])), "v.kept.rate.append(2)", ".kept.rate"),
    # In functions.
    (lambda: function(1), "v.__closure__[0].cell_contents = True", ".__closure__['held']"),
    (lambda: function([1]), "v.__closure__[0].cell_contents.append(2)", ".__closure__['held']"),
    (lambda: function(1), "v.__defaults__ = (3.0,)", ".__defaults__[0]"),
    (lambda: function(1, {"k": 1}), "v.__defaults__[0]['k'] = True", ".__defaults__[0]['k']"),
    (lambda: function(1), "v.__kwdefaults__['z'] = 4.0", ".__kwdefaults__['z']"),
    (lambda: function(note=1), "v.note = True", ".note"),
    (lambda: plain(lambda: 1), "v.rate.__code__ = (lambda: 2).__code__", ".rate"),
    (lambda: types.MethodType(print, plain(1)), "v.__self__.rate = True", ".__self__.rate"),
    (lambda: functools.partial(print, plain(1)), "v.args[0].rate = True", ".args[0].rate"),
    (lambda: functools.partial(print, end=1), "v.keywords['end'] = True", ".keywords['end']"),
    (lambda: functools.partial(print, end=1), "v.keywords['sep'] = 1", ""),
    # In containers.
    (lambda: (1, (plain(1),)), "v[1][0].rate = True", "[1][0].rate"),
    (lambda: plain([1, 2]), "v.rate[1] = 2.0", ".rate[1]"),
    (lambda: plain([1, 2]), "v.rate.append(3)", ".rate"),
    (lambda: plain(collections.deque([1], 5)), "v.rate.append(3)", ".rate"),
    (lambda: plain({"k": 1, 1: 2}), "v.rate['k'] = True", ".rate['k']"),
    (lambda: plain({"k": 1, 1: 2}), "v.rate['new'] = 1", ".rate"),
    (lambda: plain({"k": 1, 1: 2}), "v.rate['k'] = v.rate.pop('k')", ".rate"),
    (lambda: plain({1, "a", 0.0}), "v.rate.discard(1); v.rate.add(True)", ".rate"),
    (lambda: plain(np.zeros(2)), "v.rate[0] = -0.0", ".rate"),
    (lambda: plain(np.array([plain(1)])), "v.rate[0].rate = True", ".rate[0].rate"),
    (lambda: plain(bytearray(b"ab")), "v.rate.append(3)", ".rate"),
]


@pytest.mark.parametrize(("make", "change", "path"), CHANGES, ids=range(len(CHANGES)))
def test_every_change_is_named_with_its_path(make: Any, change: str, path: str) -> None:
    """Nothing is found before the change, and the path to it stands in the message after it."""
    params = Params(1.0, make())
    with lw.debug.check_statics():
        jax.tree.structure(params)
        exec(change, {"v": params.s, "np": np})  # noqa: S102  # the rows above
        with pytest.raises(lw.errors.StaticMutatedError) as caught:
            jax.tree.structure(params)
    assert f"(Params.s{path}" in str(caught.value)
