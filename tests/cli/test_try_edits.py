"""The edits that `leafwise explain --try` makes: each kind, and where there must be none."""

import contextlib
import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import pytest
from tests.kit.explained import program
from tests.kit.inside import (
    Advice,
    Code,
    EventRecord,
    Finding,
    Replacement,
    applied,
    edits_for,
    findings,
    from_json,
    shown,
)

from .conftest import Explained

pytest.importorskip("equinox")

HEAD = """\
import dataclasses
import functools
import equinox as eqx
import jax
import jax.numpy as jnp
import leafwise as lw
step = jax.jit(lambda x, f: f(x) + 1, static_argnames="f")
x = jnp.ones(3)
def double(x): return x * 2
"""

RIGHT = """\
# an argument under filter_jit
  scaled = eqx.filter_jit(lambda a, x: a * x)
  for a in (0.5, 0.25, 0.75):
-     scaled(a, x=x)
+     scaled(jnp.asarray(a), x=x)
# an argument that becomes an array
  add = jax.jit(lambda y, rate: y + rate)
  rate = 0.5
  for _ in range(3):
-     rate = add(jnp.float32(1), rate)
+     rate = add(jnp.float32(1), jnp.float32(rate))
# arrays of another dtype
  times = jax.jit(lambda a, y: a * y)
  times(x, x)
- times(x, jnp.arange(3))
+ times(x, jnp.arange(3).astype(jnp.float32))
# an argument of a method
  class Model:
      @functools.partial(jax.jit, static_argnums=0)
      def scaled(self, rate):
          return jnp.float32(2) * rate
  model, rate = Model(), 0.5
  for _ in range(3):
-     rate = model.scaled(rate)
+     rate = model.scaled(jnp.float32(rate))
# a lambda by keyword
+ f = lambda x: x * 3
  for _ in range(3):
-     x = step(x, f=lambda x: x * 3)
+     x = step(x, f=f)
# a lambda by position
+ f = lambda x: x * 4
  for n in range(3):
-     y = step(x, lambda x: x * 4)
+     y = step(x, f)
# the one lambda for a function of JAX
+ f = lambda c, x: (c + 1, x)
  for _ in range(3):
-     jax.lax.scan(lambda c, x: (c + 1, x), jnp.float32(0), x)
+     jax.lax.scan(f, jnp.float32(0), x)
# a lambda in the inner of two loops
+ f = lambda x: x * 5
  for _ in range(2):
      y = x
      while y.sum() < 99:
-         y = step(y, f=lambda x: x * 5)
+         y = step(y, f=f)
# a lambda that reads what the outer loop binds
  for n in (2, 3):
      n = jnp.float32(n)
+     f = lambda x: x * n
      for _ in range(3):
-         step(x, f=lambda x: x * n)
+         step(x, f=f)
# a lambda in a function
  def main():
+     f = lambda x: x * 6
      for n in range(3):
-         step(x, f=lambda x: x * 6)
+         step(x, f=f)
  if __name__ != "main":
      main()
# a lambda over lines
+ f = (lambda x:
+         x * 7)
  for _ in range(3):
-     step(x, f=lambda x:
-         x * 7)
+     step(x, f=f)
# a call over lines, indented by tabs
  for n in range(1):
+ \tf = lambda x: x * 8 + n
  \tfor _ in range(n + 3):
  \t\tstep(
  \t\t\tx,
- \t\t\tf=lambda x: x * 8 + n,  # times eight
+ \t\t\tf=f,  # times eight
  \t\t)
# next to other letters
+ f = lambda x: x + len("ä")
  for _ in range(3):
-     "äöü" + "äöü"; step(x, f=lambda x: x + len("ä")); "ß"
+     "äöü" + "äöü"; step(x, f=f); "ß"
# a loop in one line
+ f = lambda x: x * 9
- for _ in range(3): step(x, f=lambda x: x * 9)
+ for _ in range(3): step(x, f=f)
# in a condition
+ f = lambda x: x - 9
  for _ in range(3):
-     if step(x, f=lambda x: x - 9) is None:
+     if step(x, f=f) is None:
          pass
# a partial
+ f = functools.partial(jnp.add, 2)
  for _ in range(3):
-     step(x, f=functools.partial(jnp.add, 2))
+     step(x, f=f)
# jax.jit in a loop
+ jitted = jax.jit(lambda x: x * 2)
  for _ in range(4):
-     x = jax.jit(lambda x: x * 2)(x)
+     x = jitted(x)
      jax.block_until_ready(x)
# jax.jit of a lambda, whose attributes have names of the loop
+ jitted = jax.jit(lambda linalg: jnp.linalg.norm(linalg))
  for _ in range(4):
-     norm = jax.jit(lambda linalg: jnp.linalg.norm(linalg))(x)
+     norm = jitted(x)
# jax.jit of a gradient
+ jitted_double = jax.jit(jax.vmap(double, in_axes=(0,)))
  for _ in range(4):
-     jax.jit(jax.vmap(double, in_axes=(0,)))(x)
+     jitted_double(x)
# an assigned function
+ mapped = jax.jit(jax.vmap(double))
  for _ in range(4):
-     mapped = jax.jit(jax.vmap(double))
      mapped(x)
# a function with a decorator, which reads what the outer loop binds
  for n in (2, 3):
      n = jnp.float32(n)
+     @jax.jit
+     def times_n(x):
+         return x * n
      for _ in range(3):
          pass  # which stays
-         @jax.jit
-         def times_n(x):
-             return x * n
          times_n(x)
# a function called in an f-string
+ def fifth(x): return x / 5
  for _ in range(3):
-     def fifth(x): return x / 5
      print(f"{step(x, f=fifth)}")
# a function that is given
+ def tenth(x): return x / 10
  for _ in range(3):
-     def tenth(x): return x / 10
      step(x, f=tenth)
# static fields, as leafwise, equinox and JAX mark them
  @lw.pytree
  class Params:
-     a: float = lw.static_field(default=2.0)
+     a: float = lw.field(default=2.0)
-     b: lw.Static[float] = 3.0
+     b: float = 3.0
  class Rates(eqx.Module):
-     c: float = eqx.field(static=True)
+     c: float
-     d: float = eqx.field(default=4.0, static=True, repr=False)
+     d: float = eqx.field(default=4.0, repr=False)
  @jax.tree_util.register_dataclass
  @dataclasses.dataclass
  class State:
-     e: float = dataclasses.field(metadata=dict(static=True))
+     e: float
-     f: float = dataclasses.field(metadata={"static": True}, default=6.0)
+     f: float = dataclasses.field(default=6.0)
  scaled = jax.jit(lambda x, s: x * s[0].a * s[0].b * s[1].c * s[1].d * s[2].e * s[2].f)
  for n in (0.5, 0.25, 0.75):
      y = scaled(x, (Params(a=n, b=n + 1), Rates(c=n + 2, d=n + 3), State(e=n + 4, f=n + 5)))
# a static argument that is only computed with
  @functools.partial(jax.jit, static_argnames="rate")
  def untouched(x, rate): return x * rate
- @functools.partial(jax.jit, static_argnames="rate")
+ @functools.partial(jax.jit)
  def by_name(x, rate): return x * rate
- @functools.partial(jax.jit, static_argnames=("n", "rate", "scale"))
+ @functools.partial(jax.jit, static_argnames=("n", ))
  def of_several(x, n, rate, scale): return x[:n] * rate * scale
  class Model:
-     @functools.partial(jax.jit, static_argnums=(0, 2))
+     @functools.partial(jax.jit, static_argnums=(0, ))
      def by_number(self, x, rate): return x * rate
  def plain(x, rate): return x * rate
- called = jax.jit(plain, donate_argnums=0, static_argnums=1, inline=True)
+ called = jax.jit(plain, donate_argnums=0, inline=True)
- made = jax.jit(lambda x, rate: x - rate, static_argnums=[1])
+ made = jax.jit(lambda x, rate: x - rate)
  model = Model()
  for rate in (0.5, 0.25, 0.75):
      by_name(x, rate)
      of_several(x, 2, rate, scale=1 - rate)
      model.by_number(x, rate)
      called(x + 1, rate)
      made(x, rate)
# a lambda that reads what the loop only passes on, to JAX, builtins and jitted functions
  rates, cfg = jnp.ones(3), {"rate": 2}
  def penalty(x): return x * cfg["rate"] + rates
  shifted = jax.jit(jax.vmap(lambda a, b: a - b))
+ f = lambda x: penalty(x) - 12
  for n in range(3):
      rate = cfg["rate"] + len(cfg)
      y = shifted(rates, jnp.full(3, rate)) + jnp.add(rates, n)
-     step(x, f=lambda x: penalty(x) - 12)
+     step(x, f=f)
# a call of a package
  from jax.scipy.optimize import minimize
  def loss(x): return ((x - 3) ** 2).sum()
+ jitted_minimize = jax.jit(lambda x: minimize(loss, x, method="BFGS"))
  for _ in range(4):
-     x = minimize(loss, x, method="BFGS").x + 1
+     x = jitted_minimize(x).x + 1
# a call of a package with a lambda that reads what the loop binds
  from jax.scipy.optimize import minimize
+ jitted_minimize = jax.jit(lambda x, a: minimize(lambda x: ((x - a) ** 2).sum(), x, method="BFGS"))
  for a in (0.5, 0.25, 0.75, 1.0):
-     y = minimize(lambda x: ((x - a) ** 2).sum(), x, method="BFGS").x
+     y = jitted_minimize(x, a).x
"""

# Each reads its number, so that all are other functions.
NONE = """\
# the lambda reads the variable of the loop
for n in range(3):
    step(x, f=lambda x: x * n)
# it has such a default
for n in range(3):
    step(x, f=lambda x, n=n: x)
# it reads a list that grows
ns = []
for n in range(3):
    ns.append(n)
    step(x, f=lambda x: x * len(ns))
# it reads an attribute that the loop sets
class Rate: value = 1
for n in range(3):
    Rate.value = 1 + n
    step(x, f=lambda x: x * Rate.value)
# it reads what a function sets
rate = 1
def next_rate():
    global rate
    rate += 1
for _ in range(3):
    step(x, f=lambda x: x * rate)
    next_rate()
# it reads what a function of the file changes
table = {"rate": 1.0}
def bump(): table["rate"] *= 2
def twice(): bump(), bump()
for _ in range(3):
    step(x, f=lambda x: x * table["rate"])
    twice()
# it calls a function that reads what another changes
table = {"rate": 1.0}
def scaled(x): return x * table["rate"]
bump = lambda: table.update(rate=table["rate"] * 2)
for _ in range(3):
    step(x, f=lambda x: scaled(x) + 13)
    list(map(lambda _: bump(), "a"))
# it reads what a method of another object changes
rates = [1.0]
class Schedule:
    def grow(self): rates[0] *= 2
schedule = Schedule()
for _ in range(3):
    step(x, f=lambda x: x * rates[0])
    r = schedule.grow()
# it reads what is passed to a function
rates = [1.0]
def update(values): values[0] *= 2
for _ in range(3):
    step(x, f=functools.partial(lambda values, x: x * values[0], rates))
    update(rates)
# the name exists
f = 1
for _ in range(3):
    step(x, f=lambda x: x + 1)
# the name is a parameter
def main(f=None):
    for _ in range(3):
        step(x, f=lambda x: x + 1 if f is None else 2)
main()
# in a comprehension
for _ in range(1):
    [step(x, f=lambda x: x + 2) for _ in range(3)]
# an argument in an f-string
scaled = eqx.filter_jit(lambda a, x: a * x)
for a in (0.5, 0.25, 0.75):
    f"{scaled(a, x)}"
# in an f-string
for _ in range(3):
    f"{step(x, f=lambda x: x + 3)}"
# in no loop
def once(): step(x, f=lambda x: x + 7)
for _ in range(3): once()
# in the body of a class
class Body:
    for _ in range(3):
        step(x, f=lambda x: x + 8)
# a partial of what is computed
for _ in range(3):
    step(x, f=functools.partial(jnp.add, len("a")))
# a function with two definitions
for n in range(3):
    def triple(x): return x * 3
    step(x, triple)
    triple = double
# it reads the variable of the loop
for n in range(3):
    @jax.jit
    def triple(x): return x * n
    triple(x)
# it has another decorator
def shown(f): return print(f.__name__) or f
for _ in range(3):
    @jax.jit
    @shown
    def triple(x): return x * 3
    triple(x)
# it has a text of several lines, which its indent is a part of
for n in range(3):
    def triple(x):
        '''Three times,
        or more.'''
        return x * 3
    step(x, triple)
# it has a default
for _ in range(3):
    @jax.jit
    def triple(x, n=jnp.ones(3)): return x * n
    triple(x)
# two classes have a static field of that name
@lw.pytree
class Rate:
    value: float = lw.static_field()
@lw.pytree
class Other:
    value: float = lw.static_field()
scaled = jax.jit(lambda x, rate: x * rate.value)
for n in (0.5, 0.25, 0.75):
    scaled(x, Rate(n))
# arguments behind a star
scaled = eqx.filter_jit(lambda a, x: a * x)
for a in (0.5, 0.25, 0.75):
    scaled(*(a, x))
# the static arguments have a name
static = ("n",)
fill = jax.jit(lambda n: jnp.zeros(3) + n, static_argnames=static)
for n in range(3):
    fill(n)
"""


def cases(text: str) -> list[Any]:
    every = re.findall(r"# (.*)\n((?:[^#].*\n)*)", text)
    slow = [pytest.mark.nightly]
    return [
        pytest.param(code, id=name, marks=slow if "package" in name else []) for name, code in every
    ]


def edits_of(
    explained: Explained, folder: Path, code: str
) -> tuple[list[tuple[Finding, list[Replacement]]], str]:
    """Run a program; return the edits of each finding, and what it printed."""
    file, run = program(folder, code)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        report = explained(run)
    events = from_json(list[EventRecord], report["events"])
    edited = [(finding, edits_for(finding, file)) for finding in findings(events)]
    # No edit depends on words.
    for event in events:
        if (why := event.explanation) is not None:
            wordless = tuple(
                reason._replace(cause=Advice("1", reason.fix._replace(words="2", names=())))
                for reason in why.reasons
            )
            event.explanation = dataclasses.replace(why, reasons=wordless)
    again = [edits_for(finding, file) for finding, _ in edited]
    assert [edits for _, edits in edited] == again
    return edited, printed.getvalue()


def test_half_an_edit_is_not_made(tmp_path: Path) -> None:
    """Without its use a definition is left out; one with several uses is made once."""
    file = tmp_path / "program.py"
    file.write_text("step(f, step(f, 1))")
    code = Code(str(file))
    uses = [Replacement(code, at, at + 4, "jit") for at in (0, 8)]
    edits = [*uses, *(Replacement(code, 0, 0, "jit = 1\n", use) for use in uses)]
    assert applied(edits) == {code: b"jit = 1\njit(f, jit(f, 1))"}
    outer = Replacement(code, 0, 12, "outer", None)
    assert applied([uses[1], outer, Replacement(code, 0, 0, "a = 1\n", outer)]) == {
        code: b"step(f, jit(f, 1))"
    }


def retraces(found: list[tuple[Finding, list[Replacement]]]) -> int:
    return sum(each.retraces + each.recompiles for each, _ in found)


@pytest.mark.parametrize("case", cases(RIGHT))
def test_an_edit(case: str, explained: Explained, tmp_path: Path) -> None:
    """Every other character stays, and with the edit the program has no such finding any more."""
    old, new = (
        HEAD + "".join(f"{line[2:]}\n" for line in case.splitlines() if line[0] != sign)
        for sign in "+-"
    )
    found, printed = edits_of(explained, tmp_path, old)
    files = applied(edit for _, several in found for edit in several)
    assert [data.decode() for data in files.values()] == [new]
    changed = [line for line in case.splitlines() if line[0] != " "]
    assert sorted(each for each in shown(files, {}) if each[0] != " ") == sorted(changed)
    left, printed_again = edits_of(explained, tmp_path, new)
    assert retraces(left) < retraces(found)
    assert printed_again == printed


@pytest.mark.parametrize("code", cases(NONE))
def test_no_edit(code: str, explained: Explained, tmp_path: Path) -> None:
    """Where an edit could change what the program does, or a name is taken, there is none."""
    found, _ = edits_of(explained, tmp_path, HEAD + code)
    assert found
    assert [each for _, each in found if each] == []


def test_a_name_for_two_functions(explained: Explained, tmp_path: Path) -> None:
    """The costlier finding has it, and the other one no edit."""
    loops = [f"for _ in range(3):\n    step(x, f=lambda x: x * {n})\n" for n in (10, 11)]
    code = HEAD + "".join(loops)
    (_, first), (_, second) = edits_of(explained, tmp_path, code)[0]
    assert first
    assert not second
