"""The chains that code spells to values outside it."""

import itertools
import sys
import types
from collections.abc import Iterable
from typing import Any

import pytest

from leafwise._objects.source.names import Chain, Item, Root, chains_of, chains_within, value_of
from leafwise._objects.stand_ins import MISSING


def code_of(body: str) -> types.CodeType:
    """Return the code of a function of these parameters, over one cell, with this body."""
    lines = "\n        ".join(body.split("\n"))
    source = f"def outer(cell, n):\n    def run(self, x, k):\n        {lines}\n        cell, n\n"
    source += "    return run\nrun = outer(1, 2)\n"
    names: dict[str, types.FunctionType] = {}
    exec(source, names)  # type: ignore[arg-type]  # noqa: S102  # the rows below
    return names["run"].__code__


def spelled(chains: Iterable[Chain]) -> str:
    """Return chains as they would be written, what the fixed part of the code reads left out."""
    marks = {Root.GLOBAL: "", Root.CELL: "^", Root.LOCAL: "~", Root.IMPORT: "@"}
    texts = []
    for each in chains:
        steps = [f"[{s.key!r}]" if isinstance(s, Item) else f".{s}" for s in each.steps]
        texts.append(marks[each.root] + each.name + "".join(steps))
    return " ".join(text for text in texts if text not in ("^cell", "^n"))


READ = {
    # Roots: globals, ^cells, ~parameters, @imports.
    "return a.b.c + cell.d": "a.b.c ^cell.d",
    "return self.w['a'][0].b": "~self.w['a'][0].b",
    "return x": "~x",
    "return f(x, a)": "f ~x a",
    "return a[k], a[1.5], a[-1]": "a ~k a[-1]",
    "return a['b'] + 1, a == 'b'": "a['b'] a",
    "x = (a if k else b).c\nreturn x, f(x)": "~k a b.c f",
    "return (a and b).c": "a b.c",
    "return a.f('x')['y'].z": "a.f",
    "return 0 < a.b < x": "a.b ~x",
    "return f'{a.b}{c!r}'": "a.b c",
    "for each in a.b: each.c": "a.b",
    "return [each.b for each in self.a]": "~self.a",
    "with a.b as c: return c.d": "a.b",
    "import p.q\nreturn p.q.r": "@p.q.r",
    "import p.q.r as m\nreturn m.s": "@p.q.r.s",
    "from p.q import r, s as t\nreturn r.x, t.y": "@p.q.r.x @p.q.s.y",
    "from ..p import q\nreturn q": "@..p.q",
    "import p": "",
    # One other name.
    "c = a.b\nreturn c.d, c['e']": "a.b.d a.b['e']",
    "c = a\nreturn x": "~x",
    "c = self.a\nd = c.b\nreturn d.e": "~self.a.b.e",
    "c = a\nc = b\nreturn c.d": "a b",
    "c, d = a, b\nreturn c.x, d.y": "a b.y",
    "for i in x:\n    if i: return c.d\n    c = a": "~x a",
    "c = a\nreturn lambda: c.d": "a",
    "x = x.T\nreturn x.a": "~x.T",
    "k = k or a.k\nreturn k.b": "~k a.k",
    # What is only written to.
    "a.append(x)": "~x",
    "a.b.append(x)": "~x",
    "a[k].append(x)": "~k ~x",
    "return a.pop()": "a.pop",
    "u = a.update(x)\nreturn u": "a.update ~x",
    "a.update(x).b = k": "~k a.update ~x",
    "a.b.f(x)": "a.b.f ~x",
    "a.b = 1\na.c.d = 2\ndel a.e": "",
    "a['b'] = 1\na[x.b, a.c] = 2\ndel a[k]": "~x.b a.c ~k",
    "a.b += x.c\na['b'] += 1\na[k] -= 1": "~x.c ~k",
    "f(x).b = 1": "f ~x",
    "global a\na += 1": "",
    "global a\na += 1\nreturn a": "a",
    "global a\nif a: return 1\na = False": "a",
    "nonlocal n\nn += x": "~x",
    "x += a.b\nreturn x": "~x a.b",
}


@pytest.mark.parametrize("body", READ)
def test_what_is_read(body: str) -> None:
    """A chain is a name and what stands behind it; what is only written to is none."""
    assert spelled(chains_of(code_of(body))) == READ[body]


def test_functions_inside() -> None:
    """What inner functions read is read from the outer one, except for its own variables."""
    body = "y = a\ndef g(z): return cell.b + y.c + z.d + e.f\nreturn [g(h.i) for _ in range(3)]"
    found = chains_within(code_of(body))
    assert {*spelled(found).split()} >= {"a", "^cell.b", "e.f", "h.i", "range"}
    assert not {each for each in found if each.name in ("y", "z")}
    assert "e.f" not in spelled(chains_of(code_of(body)))


@pytest.mark.parametrize("way", ["..", ".settings", "..settings"])
def test_relative_imports(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module is found as the function's own package names it; another one is not there."""
    for name in ("m_of_a_test", "m_of_a_test.settings"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    source = f"def run():\n    from {way} import rate\n    return rate.x"
    names: dict[str, Any] = {"__package__": "m_of_a_test.sub"}
    exec(source, names)  # noqa: S102  # in a package of its own
    (chain,) = chains_of(names["run"].__code__)
    assert value_of(chain, names["run"]) is MISSING
    sys.modules["m_of_a_test.settings"].rate = 2  # type: ignore[attr-defined]
    assert value_of(chain, names["run"]) == (2 if way == "..settings" else MISSING)


def test_lines() -> None:
    """Each chain is told once, with the first line that reads it."""
    chains = chains_of(code_of("c = a\nb.x\nreturn c.y, b.x, c.y"))
    assert [(each.name, each.line - 3) for each in chains[:2]] == [("b", 1), ("a", 2)]


def test_without_columns() -> None:
    """Where Python keeps no columns, what changes may count as read, and nothing is lost."""
    for body, read in READ.items():
        code = code_of(body)
        bare = code.replace(co_linetable=b"")
        assert {*spelled(chains_of(bare)).split()} >= {*read.split()}
        assert list(itertools.filterfalse(lambda each: each.line == 2, chains_of(bare))) == []
