"""Each kind of fix with code in it, put into the program that provoked it as it is printed."""

import re
from pathlib import Path
from typing import Any

import pytest

import leafwise as lw

from .conftest import Explained, program

HEAD = """\
import dataclasses
import equinox as eqx
import functools
import jax
import jax.numpy as jnp
import numpy as np
from typing import Any, Callable
import leafwise as lw
"""

# A program; what of it is replaced, and by what: {0} is the first piece of code of the fix.
FOUND: dict[str, tuple[str, dict[str, str]]] = {
    "commitment": (
        "x = jnp.ones(37)\nstep = jax.jit(lambda x: x)\nstep(x)\n"
        "step(jax.device_put(x, jax.devices()[0]))",
        {"step(x)": "step({0}(x, jax.devices()[0]))"},
    ),
    "rebuilt function": (
        "@lw.pytree\nclass P:\n    x: jax.Array\n    f: Any = lw.static_field()\n"
        "step = jax.jit(lambda p: p.f(p.x))\n"
        "for _ in range(3):\n    step(P(jnp.ones(39), lambda x: x))",
        {"lw.static_field()": "{0}"},
    ),
    "sizes of a batch": (
        "step = jax.jit(lambda x: x * 3)\nfor n in (2, 3, 4):\n    jax.vmap(step)(jnp.ones(n))",
        {"jnp.ones(n)": "jnp.ones(4)"},  # pad to one size
    ),
    "mask": (
        "x = jnp.arange(41.0)\nfor n in range(1, 7):\n    x[x < n].sum()",
        {"x[x < n].sum()": "mask = x < n; {0}.sum()"},
    ),
    "unique": (
        "for n in range(1, 7):\n    jnp.unique(jnp.arange(43) % n)",
        {"jnp.unique(jnp.arange(43) % n)": "n = 6; jnp.unique(jnp.arange(43) % n, {0})"},
    ),
    "number of a solver": (
        "from jax.scipy.sparse.linalg import cg\nx = jnp.ones(47)\n"
        "def solve(b, tol): return cg(lambda v: 2.0 * v, b, tol=tol)[0]\n"
        "for n in (1e-3, 1e-4, 1e-5):\n    solve(x, n)",
        {"def solve": "{0}\ndef solve", "cg(lambda v: 2.0 * v, b, tol=tol)[0]": "{1}[0]"},
    ),
    "number in a function of a solver": (
        "from jax.lax import custom_root, fori_loop\n"
        "def solve(f, x):\n    return fori_loop(0, 9, lambda _, x: x - f(x) / x, x)\n"
        "def invert(f, y):\n    return y / f(1.0)\n"
        "for n in (2.0, 3.0, 4.0):\n    custom_root(lambda x: x**2 - n, 1.0, solve, invert)",
        {"custom_root(lambda x: x**2 - n, 1.0, solve, invert)": "{1}", "for n": "{0}\nfor n"},
    ),
}

AT_NIGHT = ("mask", "unique")


def run(folder: Path, explained: Explained, code: str) -> Any:
    return explained(program(folder, f"{HEAD}{code}\n")[1])["findings"]


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.nightly] * (each in AT_NIGHT)) for each in FOUND]
)
def test_of_a_finding(name: str, explained: Explained, tmp_path: Path) -> None:
    """With its fix the program has no finding any more."""
    code, places = FOUND[name]
    findings = run(tmp_path, explained, code)
    if not findings and name in ("mask", "unique"):
        pytest.skip("nobody counts runs of lines before Python 3.12")
    fixes = [fix for each in findings for fix in each["fixes"]]
    pieces = re.findall("`([^`]+)`", " ".join(fixes))
    for old, new in places.items():
        assert old in code
        code = code.replace(old, new.format(*pieces))
    assert run(tmp_path, explained, code) == []


# Words of a fix, and a program: what follows ` -> ` takes the place of its line.
IN_WORDS = """\
# pad to one shape, or a few
step = jax.jit(lambda x: x * 51)
for n in (2, 3):
    step(jnp.ones(n))  # -> step(jnp.ones(3))
# preallocate, or pad
xs = jnp.zeros(0)  # -> xs = jnp.zeros(7)
for n in range(7):
    xs = jnp.append(xs, n)  # -> xs = xs.at[n].set(n)
# use the same structure each time
step = jax.jit(lambda x: x[0] * 55)
step((jnp.ones(2),))
step([jnp.ones(2)])  # -> step((jnp.ones(2),))
# always pass an array there: None is part of the structure
step = jax.jit(lambda x, y: x * 57)
step(jnp.ones(2), None)  # -> step(jnp.ones(2), jnp.zeros(2))
step(jnp.ones(2), jnp.ones(2))
# insert in the same order
from collections import OrderedDict
step = jax.jit(lambda d: d["a"] * 59)
step(OrderedDict(a=jnp.ones(2), b=jnp.ones(2)))
d = OrderedDict(b=jnp.ones(2), a=jnp.ones(2))  # -> d = OrderedDict(a=jnp.ones(2), b=jnp.ones(2))
step(d)
# stack the elements in one array, or pad
step = jax.jit(lambda xs: sum(xs) * 61)
for n in (2, 3):
    xs = [jnp.ones(())] * n
    step(xs)  # -> step(jnp.stack(xs + [jnp.zeros(())] * (3 - n)))
# use the same keys each time
step = jax.jit(lambda d: d["a"] * 63)
step({"a": jnp.ones(2)})  # -> step({"a": jnp.ones(2), "b": jnp.ones(2)})
step({"a": jnp.ones(2), "b": jnp.ones(2)})
# always pass the same number of arguments
step = jax.jit(lambda *xs: xs[0] * 65)
step(jnp.ones(2))  # -> step(jnp.ones(2), jnp.zeros(2))
step(jnp.ones(2), jnp.ones(2))
# always pass it, or never
step = jax.jit(lambda x, scale=2.0: x * 67)
step(jnp.ones(2))  # -> step(jnp.ones(2), 2.0)
step(jnp.ones(2), 2.0)
# always pass it the same way
step = jax.jit(lambda x: x * 69)
step(jnp.ones(2))  # -> step(x=jnp.ones(2))
step(x=jnp.ones(2))
# pass values of the same type
@lw.pytree
class P:
    x: jax.Array
    n: lw.Static[Any]
step = jax.jit(lambda p: p.x * 73)
step(P(jnp.ones(2), 1))
step(P(jnp.ones(2), 1.0))  # -> step(P(jnp.ones(2), 1))
# reuse one object, or make Config a frozen dataclass
class Config:  # -> @dataclasses.dataclass(frozen=True) class Config:
    depth: int = 3
step = jax.jit(lambda x, config: x * 75, static_argnums=1)
for _ in range(2):
    step(jnp.ones(2), Config())
# pass the same value each time, or a few
step = jax.jit(lambda x, mode: x * 79, static_argnums=1)
for mode in "ab":  # -> for mode in "bb":
    step(jnp.ones(2), mode)
# pass `rate` as an argument, and define the lambda once
step = jax.jit(lambda f, *args: f(*args) * 81, static_argnums=0)
f = lambda x, rate: x * rate
def train(rate):
    step(lambda x: x * rate, jnp.ones(2))  # -> step(f, jnp.ones(2), rate)
for rate in (0.1, 0.2):
    train(rate)
# create it once
@dataclasses.dataclass(frozen=True)
class Optimizer:
    update: Any
def make():
    return Optimizer(lambda x: x)
step = jax.jit(lambda x, optimizer: optimizer.update(x) * 85, static_argnums=1)
optimizer = make()
for _ in range(2):
    step(jnp.ones(2), make())  # -> step(jnp.ones(2), optimizer)
# pass `self.scale` and `rate` of `self.update` as an argument, and create the rest once
def scaled(rate):
    return lambda x: x * rate
class Agent:
    def __init__(self, rate, scale):
        self.update, self.scale, self.seen = scaled(rate), scale, [rate]
    @functools.partial(jax.jit, static_argnums=0)
    def learn(self, x):  # -> def learn(self, x, rate, scale):
        return self.update(x) + self.scale  # -> return x * rate + scale
agent = Agent(0.1, 1.0)
for n in (0.1, 0.2, 0.3):
    Agent(n, n).learn(jnp.ones(88))  # -> agent.learn(jnp.ones(88), n, n)
# reuse one object: a frozen dataclass would not help, as `config` has no hash
class Trainer:
    def __init__(self, seen):
        self.config, self.seen = {"rate": 0.1}, seen
    @functools.partial(jax.jit, static_argnames="self")
    def step(self, x):
        return x * self.config["rate"] + 90
trainer = Trainer(0)
for n in range(3):
    Trainer(n).step(jnp.ones(2))  # -> trainer.step(jnp.ones(2))
# pass `self.heat` as an argument, and reuse one object
class Server:
    def __init__(self, heat):
        self.heat, self.predict = heat, jax.jit(self._predict)
    def _predict(self, x):  # -> def _predict(self, x, heat):
        return x / self.heat + 92  # -> return x / heat + 92
server = Server(1.0)
for n in (1.0, 2.0, 3.0):
    Server(n).predict(jnp.ones(2))  # -> server.predict(jnp.ones(2), n)
# pass `mode` of `config.act` as a static argument, and create the rest once
class Config:
    def __init__(self, mode):
        self.act = functools.partial(act, mode)
def act(mode, x):
    return x * (95 if mode == "a" else 96)
@functools.partial(jax.jit, static_argnums=(0, 2))
def step(config, x, mode=None):
    return config.act(x)  # -> return act(mode, x)
config = Config("a")
for mode in ("a", "b"):
    step(Config(mode), jnp.ones(2))  # -> step(config, jnp.ones(2), "a")
# make it once, before the loop
def body(x):
    return x * 97
step = jax.jit(lambda x, f: f(x), static_argnums=1)
f = jax.jit(body)
for _ in range(3):
    step(jnp.ones(2), jax.jit(body))  # -> step(jnp.ones(2), f)
# reuse one object, or make Kind a frozen dataclass: it compares by identity
class Kind:  # -> @dataclasses.dataclass(frozen=True) class Kind:
    depth: int = 3
@jax.tree_util.register_pytree_node_class
class Model:
    def __init__(self, w, kind):
        self.w, self.kind = w, kind
    def tree_flatten(self):
        return (self.w,), {"kind": self.kind}
    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(children[0], **aux)
step = jax.jit(lambda m: m.w * m.kind.depth * 98)
for _ in range(3):
    step(Model(jnp.ones(2), Kind()))
# reuse one object, or pass the object and call its method
class Model:
    def loss(self, x):
        return x * 87
step = jax.jit(lambda x, f: f(x), static_argnums=1)
model = Model()
for _ in range(2):
    step(jnp.ones(2), Model().loss)  # -> step(jnp.ones(2), model.loss)
# always pass the same kind: filter_jit traces arrays
step = eqx.filter_jit(lambda x, n: x * 89 + n)
step(jnp.ones(2), jnp.array(2))
step(jnp.ones(2), 2)  # -> step(jnp.ones(2), jnp.array(2))
# create keys the same way
step = jax.jit(lambda key: jax.random.normal(key) * 91)
step(jax.random.key(0))
step(jax.random.PRNGKey(0))  # -> step(jax.random.key(0))
# use the same setting of `jax_default_matmul_precision` for all calls
step = jax.jit(lambda x: x @ x * 93)
step(jnp.ones(2))
with jax.default_matmul_precision("float32"):  # -> if True:
    step(jnp.ones(2))
# use one dtype
step = jax.jit(lambda key: jax.random.normal(key) * 94)
step(jax.random.key(0, impl="rbg"))
step(jax.random.key(0))  # -> step(jax.random.key(0, impl="rbg"))
# pass `data` as an argument if that changes
data = [1, 2]
step = jax.jit(lambda x, f: f(x) * 82, static_argnums=1)
add = jax.jit(lambda x, size: x + size)
for _ in range(2):
    step(jnp.ones(2), lambda x: x + len(data))  # -> add(jnp.ones(2), len(data))
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [pytest.param(*each, id=each[0]) for each in re.findall(r"# (.*)\n((?:[^#].*\n)*)", IN_WORDS)],
)
def test_in_words(words: str, code: str, explained: Explained, tmp_path: Path) -> None:
    """With the edit that its words name the program has no finding any more."""
    findings = run(tmp_path, explained, code)
    if not findings and words == "preallocate, or pad":
        pytest.skip("nobody counts runs of lines before Python 3.12")
    assert any(words in fix for each in findings for fix in each["fixes"])
    code = re.sub(r"\S.*  # -> ", "", code).replace("True) class", "True)\nclass")
    assert run(tmp_path, explained, code) == []


# A program that raises; what of it is replaced by the code of the fix.
RAISED: dict[str, tuple[str, dict[str, str]]] = {
    "range": (
        "@lw.jit\ndef f(n):\n    return sum(jnp.ones(2) for _ in range(n))\nf(3)",
        {"f(n)": "f({1})"},
    ),
    "shape": ("@lw.jit\ndef f(n):\n    return jnp.zeros(n)\nf(3)", {"f(n)": "f({1})"}),
    "if": ("@lw.jit\ndef f(b):\n    return 1 if b else 2\nf(True)", {"f(b)": "f({1})"}),
    "text": ("@lw.jit\ndef f(mode):\n    return len(mode)\nf('a')", {"f(mode)": "f({1})"}),
    "function": ("@lw.jit\ndef f(g):\n    return g(1.0)\nf(jnp.sin)", {"f(g)": "f({1})"}),
    "under jax.jit": (
        "@functools.partial(jax.jit)\ndef f(n):\n    return jnp.zeros(n)\n"
        "with lw.debug.explain_errors():\n    f(3)",
        {"partial(jax.jit)": "partial(jax.jit, {2})"},
    ),
    "method": (
        "class Model:\n    def __init__(self, w):\n        self.w = w\n    w: jax.Array\n"
        "    @lw.jit\n    def step(self, x):\n        return self.w * x\n"
        "Model(jnp.ones(2)).step(1.0)",
        {"class Model": "{1}\nclass Model"},
    ),
    "function in a field": (
        "@lw.pytree\nclass P:\n    x: jax.Array\n    act: Callable[..., Any] = jax.nn.relu\n"
        "lw.jit(lambda p: p.act(p.x))(P(jnp.ones(2)))",
        {"act: Callable[..., Any] = jax.nn.relu": "{1}"},
    ),
    "a list in a static": (
        "@lw.pytree\nclass P:\n    x: jax.Array\n    n: lw.Static[Any] = None\nP(1.0, [1, 2])",
        {"[1, 2]": "{0}"},
    ),
}


@pytest.mark.parametrize("name", RAISED)
def test_of_an_error(name: str, tmp_path: Path) -> None:
    """With its fix the program runs."""
    code, places = RAISED[name]
    with pytest.raises(Exception, match=r".") as caught:
        program(tmp_path, HEAD + code)[1]()
    notes = [each for each in getattr(caught.value, "__notes__", []) if "leafwise: " in each]
    text = notes[0] if notes else str(getattr(caught.value, "message", ""))
    pieces = re.findall("`([^`]+)`", text if notes else text.partition("fix: ")[2])
    if name == "under jax.jit":
        assert not isinstance(caught.value, lw.errors.LeafwiseError)
    for old, new in places.items():
        code = code.replace(old, new.format(*pieces))
    program(tmp_path, HEAD + code)[1]()


TRAINED = """\
class Net(eqx.Module):
    lin: eqx.nn.Linear
    scale: float
    def __call__(self, x): return self.scale * self.lin(x)
@eqx.filter_jit
def step(model, x):
    g = eqx.filter_grad(lambda m: (jax.vmap(m)(x) ** 2).mean())(model)
    return eqx.apply_updates(model, jax.tree.map(lambda v: -0.1 * v, g))
for scale in (1.0, 2.0, 3.0):
    model = Net(eqx.nn.Linear(4, 2, key=jax.random.key(0)), scale)
    for i in range(3): model = step(model, jnp.ones((3, 4)))
    print(model.lin.weight)
"""


@pytest.mark.slow
def test_a_number_of_a_trained_model(
    explained: Explained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As an array it stays what it is: it gets no gradient, and does not become weakly typed."""
    (finding,) = run(tmp_path, explained, TRAINED)
    array, model, stop = re.findall("`([^`]+)`", *finding["fixes"])
    assert (array, model) == ("jnp.float32(model.scale)", "model")
    before = capsys.readouterr().out
    fixed = TRAINED.replace("random.key(0)), scale)", "random.key(0)), jnp.float32(scale))")
    assert run(tmp_path, explained, fixed.replace("self.scale *", f"{stop}(self.scale) *")) == []
    assert capsys.readouterr().out == before
