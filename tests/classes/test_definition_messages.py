"""What a user reads when a class cannot be decorated, or an instance not be used so."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from tests.property.zoo import Color

import leafwise as lw

pytestmark = pytest.mark.message


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("relu", 'default="relu"'),
        ((1, 2), "default=(1, 2)"),
        (jax.nn.gelu, "default=gelu"),
        (Color.RED, "default=Color.RED"),
        ((Color.RED,), ""),
        (object(), ""),
    ],
    ids=["text", "tuple", "function", "enum", "enum in a tuple", "object"],
)
def test_code_of_a_default(value: Any, code: str) -> None:
    """A fix has the default as it would be written, or none where that is not known."""
    own = {"__annotations__": {"act": str}, "act": lw.field(default=value)}
    with pytest.raises(lw.errors.DefinitionError, match=r"^P\.act") as error:
        lw.pytree(type("P", (), own))
    assert f"static_field({code})`" in error.value.message


SPELLINGS: dict[str, str] = {
    "n: int = lw.static_field(3)": "n: int = lw.static_field(default=3)",
    "n: int = lw.field(static=True, default=3)": "n: int = lw.static_field(default=3)",
    "n: int = lw.field(default=3, pytree_node=False)": "n: int = lw.static_field(default=3)",
    "n: int = lw.static_field(static=True, default=3)": "n: int = lw.static_field(default=3)",
    "n: int = lw.static_field(factory=int)": "n: int = lw.static_field(default_factory=int)",
    "n: int = lw.field(3, static=True, validator=bool)": (
        "n: int = lw.static_field(default=3, validator=bool)"
    ),
    "n: Any = lw.field(default=None, static=True)": "n: Any = lw.static_field(default=None)",
    "x: int = lw.Static(3)": "x: lw.Static[int] = 3",
    "x: 'lw.Static(int)' = 3": "x: lw.Static[int] = 3",
    "depth = lw.static_field(default=3)": "depth: int = lw.static_field(default=3)",
}


def defined(line: str) -> Any:
    """Return a class whose body is a line, as a user's module has it."""
    names: dict[str, Any] = {"lw": lw, "Any": Any}
    exec(f"@lw.pytree\nclass P:\n    {line}", names)  # noqa: S102  # the code of a user
    return names["P"]


@pytest.mark.parametrize("line", SPELLINGS)
def test_spellings_of_other_libraries(line: str) -> None:
    """The message has what to write, which is a static field; a bare `Static` is one, too."""
    with pytest.raises(lw.errors.DefinitionError) as error:
        defined(line)
    (fix,) = re.findall("fix: .*?`(.*?)`", error.value.message)
    assert fix in SPELLINGS[line]
    assert jax.tree.leaves(defined(SPELLINGS[line])()) == []
    assert jax.tree.leaves(defined("n: lw.Static = 3")()) == []


def test_a_field_without_a_default_below_a_base() -> None:
    """The message says whose default is in the way, and the fix is accepted."""

    @lw.pytree
    class Base:
        name: lw.Static[str] = "a"

    for kind, fix in (
        (jax.Array, "`layers: jax.Array = lw.field(kw_only=True)`"),
        (lw.Static[int], "`layers: int = lw.static_field(kw_only=True)`"),
    ):
        own: dict[str, Any] = {"__annotations__": {"layers": kind}}
        with pytest.raises(lw.errors.DefinitionError) as error:
            lw.pytree(type("Net", (Base,), dict(own)))
        first, second, *_ = error.value.message.splitlines()
        assert first.endswith("'layers' follows default argument 'name' of Base")
        assert second == f"  fix: declare it {fix}"
        declared = eval(fix.strip("`").partition(" = ")[2], {"lw": lw})  # noqa: S307  # ours
        net = lw.pytree(type("Net", (Base,), own | {"layers": declared}))
        assert len(jax.tree.leaves(net(layers=1))) == (kind is jax.Array)


SHARED: dict[str, str] = {
    "w: jax.Array = jnp.zeros(3)": "w: jax.Array = lw.field(default_factory=lambda: jnp.zeros(3))",
    "w: Any = lw.field(default=[1])": "w: Any = lw.field(default_factory=lambda: [1])",
    "w: dict[str, int] = {}": "w: dict[str, int] = lw.field(default_factory=dict)",
    "w: lw.Static[Any] = [1]": "w: Any = lw.static_field(default_factory=lambda: [1], freeze=True)",
}
HEAD = "import jax, jax.numpy as jnp, leafwise as lw\nfrom typing import Any\n"
HEAD += "@lw.pytree\nclass P:\n    "


@pytest.mark.parametrize("line", SHARED)
def test_a_default_that_instances_would_share(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the line to write, and it works; in a prompt, too, without a source."""
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(lw.errors.DefinitionError, match=r"^P\.w: an array, a list") as in_prompt:
        exec(HEAD + line, {"__name__": "prompt"})  # noqa: S102  # the code of a user
    name = f"shared_{[*SHARED].index(line)}"
    (tmp_path / f"{name}.py").write_text(HEAD + line)
    with pytest.raises(lw.errors.DefinitionError) as in_file:
        importlib.import_module(name)
    assert f"fix: `{SHARED[line]}`" in in_file.value.message
    for error in (in_prompt, in_file):
        names: dict[str, Any] = {"__name__": "pasted"}
        exec(HEAD + re.findall("fix: `(.*)`", error.value.message)[0], names)  # noqa: S102
        assert names["P"]() == names["P"]()


@pytest.mark.parametrize("default", [jax.random.key(0), jnp.zeros(100)])
def test_a_default_whose_code_is_not_known(default: Any) -> None:
    """The fix has a placeholder in its place, and never code that makes another value."""
    with pytest.raises(lw.errors.DefinitionError, match=r"default_factory=\.\.\.\)`"):
        lw.pytree(type("P", (), {"__annotations__": {"w": Any}, "w": default}))


@pytest.mark.parametrize("kind", [lw.Static[int], Any])
def test_a_property_of_the_name_of_a_field(kind: Any) -> None:
    """It would be the default; that of a base is none, since a field may implement it."""
    own = {"__annotations__": {"n": kind}, "n": property(lambda self: 3)}
    with pytest.raises(lw.errors.DefinitionError, match=r"P\.n: a property of the same name"):
        lw.pytree(type("P", (), own))
    base = type("Base", (), {"n": own["n"]})
    assert lw.pytree(type("P", (base,), {"__annotations__": {"n": lw.Static[int]}}))(4).n == 4


def test_a_function_as_the_default_of_a_dynamic_field() -> None:
    """It is a warning at the class statement, with three ways out; no other field has one."""
    own = {"__annotations__": {"act": Callable}, "act": jax.nn.relu}
    with pytest.warns(lw.errors.DynamicFunctionWarning) as caught:
        lw.pytree(type("P", (), own))
    (warning,) = caught
    assert warning.filename == __file__
    text = warning.message
    assert isinstance(text, lw.errors.DynamicFunctionWarning)
    lines = text.message.splitlines()
    assert lines[0].startswith("P.act: its default is a function, but the field is dynamic")
    assert lines[2:] == [
        "  fix: `act: lw.Static[Callable] = relu`,",
        "       or, for arrays in it: `act: Callable = jax.tree_util.Partial(relu)`,",
        "       or, for equinox.filter_jit: `act: Callable = lw.field(default=relu)`",
    ]


@pytest.mark.parametrize(
    "default",
    [jax.tree_util.Partial(jnp.sin), lw.field(default=jnp.sin), lw.static_field(default=jnp.sin)],
    ids=["Partial", "declared", "static"],
)
def test_functions_that_are_meant(default: Any) -> None:
    """What JAX takes, and what is declared, does not warn: warnings are errors here."""
    lw.pytree(type("P", (), {"__annotations__": {"act": Callable}, "act": default}))
