"""What Python 3.15 brings: `frozendict`, `sentinel` and ``lazy import``."""

import builtins
import copy
import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

pytestmark = pytest.mark.skipif(sys.version_info < (3, 15), reason="Python 3.15 has them")


@lw.pytree
class P:
    x: float
    s: Any = lw.static_field(default=None)
    f: Any = lw.static_field(default=None, compare_by="content")


def same(first: Any, second: Any) -> bool:
    return jax.tree.structure(P(1.0, first)) == jax.tree.structure(P(1.0, second))


def test_frozendict() -> None:
    """Its items count by type and value, and what can change in it is refused."""
    make: Any = vars(builtins)["frozendict"]
    assert same(make(a=1), make(a=1))
    for one, other in ((1, True), (1, 1.0), (0.0, -0.0), ((1,), (1.0,))):
        assert not same(make(a=one), make(a=other))
    for refused, kind in (([1], "unhashable"), (jnp.ones(2), "array")):
        with pytest.raises(lw.errors.StaticFieldError, match=r"P\.s\['a'\]") as caught:
            P(1.0, make(a=refused))
        assert caught.value.kind == kind
    instance = P(1.0, make(a=(1, 2)))
    again = pickle.loads(pickle.dumps(instance))  # noqa: S301  # ours
    assert again == copy.deepcopy(instance) == instance
    assert lw.digest(instance) != lw.digest(P(1.0, make(a=(1, 3))))
    assert "frozendict" in str(lw.diff(instance, P(1.0, make(a=(1, 3)))))


def test_sentinel(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one object, also when it is copied, and distinct from another of its name."""
    make: Any = vars(builtins)["sentinel"]
    one = make("MISSING_HERE")
    monkeypatch.setattr(sys.modules[__name__], "MISSING_HERE", one, raising=False)
    assert same(one, copy.deepcopy(one))
    assert not same(one, make("MISSING_HERE"))
    assert "MISSING_HERE" in repr(P(1.0, one))


LAZY = """
lazy import lazy_settings
lazy from lazy_settings import RATE
lazy import lazy_other

def scaled(x):
    return x * lazy_settings.RATE * RATE

def branched(x, *, other):
    return x * lazy_other.RATE if other else x
"""


@pytest.fixture
def lazy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module whose imports have not run yet."""
    modules = {"lazy_user": LAZY, "lazy_settings": "RATE = 2.0", "lazy_other": "RATE = 2.0"}
    for name, text in modules.items():
        Path(tmp_path, f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("lazy_user")


def test_a_lazy_import_is_what_it_imports(lazy: Any) -> None:
    """By content a function has one key before and after its imports run."""
    before = jax.tree.structure(P(1.0, f=lazy.scaled))
    lazy.scaled(1.0)
    assert jax.tree.structure(P(1.0, f=lazy.scaled)) == before
    lazy.lazy_settings.RATE = 3.0
    assert jax.tree.structure(P(1.0, f=lazy.scaled)) != before


@pytest.mark.filterwarnings("error")
def test_a_lazy_import_is_not_a_stale_capture(lazy: Any) -> None:
    """One that no trace has run captures nothing; one that has is what it imports."""
    branched = lw.jit(lazy.branched, static_argnames="other")
    assert branched(1.0, other=False) == 1.0
    assert lazy.lazy_other.RATE == 2.0
    assert branched.stale_captures(1.0, other=False) == ()
    assert branched(1.0, other=False) == 1.0
    scaled = lw.jit(lazy.scaled, on_stale="retrace")
    assert scaled(1.0) == 4.0
    lazy.lazy_settings.RATE = 3.0
    assert scaled(1.0) == 6.0
    assert (len(branched.traces), len(scaled.traces)) == (1, 2)
