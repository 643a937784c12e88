"""The fixes of reasons are code that runs, and after it there is one program."""

import json
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

VALUES: dict[str, Any] = {
    "Python int": 0,
    "Python float": 0.5,
    "bool": True,
    "int32": jnp.int32(3),
    "float32": jnp.float32(0.5),
    "float16": jnp.float16(0.5),
    "weak float": jnp.array(0.5),
    "weak int": jnp.array(2),
    "complex": jnp.complex64(1j),
    "uint8": np.uint8(3),
    "int32[2]": jnp.ones(2, jnp.int32),
    "float32[2]": jnp.ones(2),
    "bfloat16[2]": jnp.ones(2, jnp.bfloat16),
    "weak float[2]": jnp.full(2, 0.5),
    "bool[2]": jnp.ones(2, bool),
}
_SCALARS = [name for name in VALUES if "[" not in name]
_ARRAYS = [name for name in VALUES if "[" in name]
PAIRS = [
    (one, other)
    for names in (_SCALARS, _ARRAYS)
    for one in names
    for other in names
    if one != other
]


def fixed(code: str, x: Any) -> Any:
    """Run the code of a fix on the value that it is for."""
    return eval(code, {"jnp": jnp, "x": x, "__builtins__": {"float": float, "int": int}})  # noqa: S307


def test_of_dtypes_and_weak_types() -> None:
    """The code of the fix makes one program of two, and no value narrower than it was."""
    for one, other in PAIRS:
        before, after = VALUES[one], VALUES[other]
        found = lw.signature(after).explain(lw.signature(before))
        if found.outcome is not lw.types.Outcome.RETRACE:
            continue
        (reason,) = found.reasons
        changed = {"earlier": before, "this": after}
        for code, which in re.findall(
            r"`([^`]+)` in (?:the )?(earlier|this) call", str(reason.fix)
        ):
            made = fixed(code, changed[which])
            common = jnp.result_type(before, after)  # a Python number gives way
            assert jnp.result_type(made) == common, (one, other, str(reason.fix))
            changed[which] = made
        first, second = map(lw.signature, changed.values())
        same = second.explain(first)
        assert same.outcome.severity < lw.types.Outcome.RECOMPILE.severity, (
            one,
            other,
            str(reason.fix),
        )


def test_leaves_that_differ_alike_are_one_line() -> None:
    """Though each has code of its own, leaves that need the same fix are one reason."""
    before, after = (lw.signature([kind(n) for n in range(5)]) for kind in (float, jnp.float32))
    found = after.explain(before)
    assert len(found.reasons) == 5
    assert len(str(found).splitlines()) == 3


def state_class(module: str) -> Any:
    namespace = {"__annotations__": {"w": Any}, "__module__": module, "__qualname__": "State"}
    return lw.pytree(type("State", (), namespace))


@pytest.fixture(scope="module")
def states() -> tuple[Any, Any]:
    """Instances of two classes of one name."""
    return state_class("envs.acrobot")(1.0), state_class("envs.pendulum")(1.0)


def test_classes_of_one_name(states: tuple[Any, Any]) -> None:
    """Two classes of one name are named with their modules."""
    before, after = map(lw.signature, states)
    explanation = after.explain(before)
    (reason,) = explanation.reasons
    for text in (str(reason), json.dumps(explanation.as_dict())):
        assert "envs.acrobot.State" in text
        assert "envs.pendulum.State" in text
    (difference,) = lw.diff(*states)
    assert "envs.acrobot.State -> envs.pendulum.State" in str(difference)


def test_numbers_of_operations_outside_jit() -> None:
    """JAX makes numbers with a dtype of Python's: their fix is code, too."""
    literals = pytest.importorskip("jax._src.literals", reason="a newer JAX has them")
    numbers = (
        literals.TypedInt(0, jnp.dtype("int32")),
        literals.TypedFloat(0.5, jnp.dtype("float32")),
    )
    before, after = map(lw.signature, numbers)
    (reason,) = after.explain(before).reasons
    assert set(reason.fix.code) == {"jnp.float32"}


def test_by_position_and_by_keyword() -> None:
    """An argument that is given in two ways is named once."""
    step = lw.jit(lambda x, lr: x * lr)
    step(1.0, 0.1)
    (reason,) = step.explain(1.0, lr=0.1).reasons
    assert (reason.path, reason.kind) == ("lr", lw.types.ReasonKind.ARGUMENTS)
    assert reason.words == ("by position", "by keyword")
