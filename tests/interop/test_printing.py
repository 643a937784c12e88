"""rich, treescope and IPython show instances: nested both ways, traced, and as they are asked."""

import io
import re
import sys
import textwrap
import types
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
import rich.console
import rich.pretty
import treescope
from IPython.lib.pretty import pretty

import leafwise as lw

# It reads every name of NumPy and JAX, the deprecated ones too.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:treescope")


@lw.pytree
class Dense:
    w: jax.Array
    act: lw.Static[str] = "relu"


@lw.pytree
class Model:
    layers: Any
    lr: float = 0.1
    depth: int = lw.static_field(default=2)


class Module(eqx.Module):
    dense: Any
    size: int = eqx.field(static=True, default=3)


@lw.pytree
class Own(Dense):
    def __repr__(self) -> str:
        return "its own"


@lw.pytree(repr=False)
class Bare:
    x: Any
    n: lw.Static[int] = 1


def dense() -> Dense:
    return Dense(jnp.ones((2, 3)))


def in_rich(value: Any, width: int = 100) -> str:
    return rich.pretty.pretty_repr(value, max_width=width)


# ------------------------------------------------------------------ rich


@pytest.mark.works("rich", "`rich.print` of an instance: arrays in short, statics marked")
def test_rich_shows_fields() -> None:
    """Fields come by name, the static ones marked, and arrays without their elements."""
    assert in_rich(dense()) == "Dense(w=f32[2,3], static act='relu')"
    nested = Model([dense(), (jnp.ones(2), {"k": jnp.zeros(1)})])
    assert in_rich(nested, 60) == textwrap.dedent("""\
        Model(
            layers=[
                Dense(w=f32[2,3], static act='relu'),
                (f32[2], {'k': f32[1]})
            ],
            lr=0.1,
            static depth=2
        )""")


@pytest.mark.works("rich", "`rich.print` of an instance: arrays in short, statics marked")
def test_rich_leaves_hidden_fields_out() -> None:
    """A field with `repr=False` is not shown, one that was never set is said to be unset."""

    @lw.pytree
    class Hides:
        x: Any = 1
        secret: str = lw.static_field(default="hunter2", repr=False)

    assert in_rich(Hides()) == "Hides(x=1)"

    @lw.pytree
    class Late:
        x: Any

    assert in_rich(object.__new__(Late)) == "Late(x=<not set>)"


@pytest.mark.works("rich", "colours for `lw.show` in a terminal")
def test_rich_colours_a_diagram(monkeypatch: pytest.MonkeyPatch) -> None:
    """The diagram is what `print` gives, in colours where the console has any."""
    monkeypatch.setenv("COLUMNS", "60")
    diagram = lw.show(Model([dense()]))

    def printed(**options: Any) -> str:
        stream = io.StringIO()
        rich.console.Console(file=stream, width=60, **options).print(diagram)
        return stream.getvalue()

    plain = printed()
    assert plain == f"{diagram}\n"
    colours = {"force_terminal": True, "color_system": "standard"}
    coloured = printed(**colours, _environ={})
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    assert "\x1b[35m'relu'" in coloured
    assert "\x1b[32mfloat32[2,3]" in coloured
    assert "\x1b[3" not in printed(**colours, _environ={"NO_COLOR": "1"})


@pytest.mark.works("rich", "colours for `lw.show` in a terminal")
def test_rich_decides_on_width_and_letters() -> None:
    """The console's width and encoding count."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = rich.console.Console(file=stream, width=40)
    console.print(lw.show({"k" * 100: 1, "[bold]": 2}))
    stream.seek(0)
    lines = stream.read().splitlines()
    assert max(map(len, lines)) == 40
    assert lines[1].startswith("|- ['[bold]']")
    assert lines[2].startswith("`- ['kkk")


# ------------------------------------------------------------------ treescope


@pytest.mark.works("treescope", "static and dynamic fields in two colours")
def test_treescope_shows_fields() -> None:
    """Text has the fields, and a page the static ones in a style of their own."""
    text = treescope.render_to_text(Model([dense()]))
    assert "act='relu'," in text
    assert "depth=2," in text
    assert treescope.render_to_text(Dense(1)) == "Dense(w=1, act='relu')"
    page = treescope.render_to_html(dense(), compressed=False)
    static = re.escape("font-style: italic; text-decoration: underline")
    assert len(re.findall(static + r"[^>]*>act<", page.replace("\\", ""))) == 1
    assert not re.search(static + r"[^>]*>w<", page.replace("\\", ""))


@pytest.mark.works("treescope", "a class in another library's, and the other way round")
def test_treescope_nests() -> None:
    """Instances show in modules and containers, and modules in instances."""
    text = treescope.render_to_text(Model({"m": Module(dense())}))
    for part in ("Model(", "'m'", "Module(", "Dense(", "act='relu'", "size=3", "lr=0.1"):
        assert part in text
    outside = treescope.render_to_text([Module(Model([dense()]))])
    assert outside.index("Module(") < outside.index("Model(") < outside.index("Dense(")


@pytest.mark.works("treescope", "roundtrip mode: text that makes the instance again")
def test_treescope_roundtrips(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text in roundtrip mode is code with qualified names, and evaluates to an equal one."""
    module: Any = types.ModuleType("made_here")
    monkeypatch.setitem(sys.modules, "made_here", module)

    class Made:
        x: Any
        n: lw.Static[int] = 2
        s: str = lw.static_field(default="a", repr=False)

    Made.__module__, Made.__qualname__ = "made_here", "Made"
    module.Made = lw.pytree(Made)
    made = module.Made((1.5,) * 40, n=3, s="b")
    text = treescope.render_to_text(made, roundtrip_mode=True)
    assert text.startswith("made_here.Made(\n")
    again = eval(text, {"made_here": module, "treescope": treescope})  # noqa: S307  # our own
    assert again == made
    assert jax.tree.structure(again) == jax.tree.structure(made)


# ------------------------------------------------------------------ IPython


@pytest.mark.works("ipython", "the repr in the width that is left")
def test_ipython_prints_in_its_width() -> None:
    """Nested deeply, the text still fits, and a short instance is its repr."""
    assert pretty(dense()) == repr(dense())
    text = pretty({"a": [Model([dense()] * 3)]}, max_width=40)
    assert max(map(len, text.splitlines())) <= 45
    assert text.count("Dense(") == 3
    assert pretty([lw.show(1.0)]) == f"[{lw.show(1.0)}]"


# ------------------------------------------------------------------ all


def test_own_repr_goes_first() -> None:
    """A subclass with its own `__repr__` is printed by that, although its base is not."""
    own = Own(jnp.ones(1))
    assert in_rich(own) == "its own"
    assert pretty([own]) == "[its own]"
    assert "act=" in treescope.render_to_text(own)


def test_no_repr_means_none_of_it() -> None:
    """`repr=False` adds nothing."""
    names = ("__rich_repr__", "__treescope_repr__", "_repr_pretty_")
    assert not any(hasattr(Bare(1), name) for name in names)
    assert all(hasattr(dense(), name) for name in names)
