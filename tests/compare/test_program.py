"""Equal programs have equal fingerprints; of others, the first operations that differ are named."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir
from tests.kit.inside import Compile, LoweredProgram, first_differences, read_program

X = np.ones((3, 3), np.float32)


def read(module: Any, options: Any = None) -> LoweredProgram:
    return read_program(Compile(module, None, None, None), options)


def parsed(text: str) -> LoweredProgram:
    with jax.jit(abs).lower(1.0).compiler_ir().context:
        return read(ir.Module.parse(text))


def lowered(fun: Callable[..., Any], *args: Any, **options: Any) -> LoweredProgram:
    return read(jax.jit(fun, **options).lower(*args).compiler_ir())


def scaled(x: Any, by: Any = 2.0) -> Any:
    return jnp.sin(x) * np.float32(by)


def line_of(text: str) -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"{__file__}:{1 + next(n for n, line in enumerate(lines) if text in line)}"


def test_names_and_places_do_not_count() -> None:
    """Names of the module and of inner functions, and lines of source, are no part of it."""

    def variant(x: Any) -> Any:
        return jnp.sin(x) * np.float32(2)

    assert lowered(scaled, X).fingerprint == lowered(variant, X).fingerprint

    def called(count: int) -> Callable[[Any], Any]:
        inner = lambda x: jnp.cos(x) + 1  # noqa: E731
        inner.__name__ = f"inner_{count}"
        return lambda x: jax.jit(inner)(x) * 2

    one, other = lowered(called(1), X), lowered(called(2), X)
    assert (one.functions, other.functions) == (("inner_1",), ("inner_2",))
    assert one.fingerprint == other.fingerprint
    assert not first_differences(one, other)


def add(x: Any) -> Any:
    return x + 1


def nan(payload: int) -> Any:
    return np.array([0x7FC00000 + payload], np.uint32).view(np.float32)[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: lowered(add, X), lambda: lowered(add, X, donate_argnums=0)),
        (lambda: lowered(scaled, X), lambda: lowered(scaled, X[:2])),
        (lambda: lowered(scaled, X), lambda: lowered(functools.partial(scaled, by=3.0), X)),
        (
            lambda: lowered(functools.partial(scaled, by=0.0), X),
            lambda: lowered(functools.partial(scaled, by=-0.0), X),
        ),
        (
            lambda: lowered(functools.partial(scaled, by=nan(0)), X),
            lambda: lowered(functools.partial(scaled, by=nan(1)), X),
        ),
        (lambda: lowered(lambda x: x - x.T, X), lambda: lowered(lambda x: x.T - x, X)),
    ],
    ids=["donated", "shape", "constant", "zero", "nan", "operands"],
)
def test_what_differs_counts(
    one: Callable[[], LoweredProgram], other: Callable[[], LoweredProgram]
) -> None:
    """What XLA would compile to something else has another fingerprint, and is found."""
    assert one().fingerprint == one().fingerprint != other().fingerprint
    assert first_differences(one(), other())
    assert not first_differences(one(), one())


def test_shardings_and_options_count() -> None:
    """A sharding is in the program; options are compared with it."""
    mesh = jax.sharding.AbstractMesh((3,), ("data",))
    spec = jax.sharding.PartitionSpec

    def sharded(to: Any) -> LoweredProgram:
        options = {"in_shardings": jax.sharding.NamedSharding(mesh, to)}
        made = jax.jit(add, **options).trace(X).lower(lowering_platforms=("cpu",))
        return read(made.compiler_ir())

    one, other = sharded(spec("data")), sharded(spec(None, "data"))
    assert one.fingerprint != other.fingerprint
    module = jax.jit(add).lower(X).compiler_ir()
    assert read(module, {"a": "1"}).fingerprint != read(module).fingerprint


def test_differences_name_the_operations_and_their_lines() -> None:
    """The first difference is the operation that differs, at its innermost line on each side."""

    def first(x: Any) -> Any:
        for each in (jnp.sin, jnp.cos, jnp.tanh):
            x = each(x)  # the first
        return x @ x

    def second(x: Any) -> Any:
        for each in (jnp.sin, jnp.tanh, jnp.cos):
            x = each(x)  # the second
        return x @ x

    found = first_differences(lowered(first, X), lowered(second, X))
    assert "stablehlo.cosine" in str(found[0].mine)
    assert "stablehlo.tanh" in str(found[0].its)
    assert str(found[0].mine).endswith(line_of("x = each(x)  # the first"))
    assert str(found[0].its).endswith(line_of("x = each(x)  # the second"))


def test_a_constant_has_the_line_that_uses_it() -> None:
    """JAX places constants where the function was called: the line that reads them is named."""
    one, other = lowered(scaled, X), lowered(functools.partial(scaled, by=3.0), X)
    (found,) = first_differences(one, other)
    assert found.mine is not None
    assert found.its is not None
    assert "2.0" in found.mine.text
    assert "3.0" in found.its.text
    assert found.mine.source == found.its.source == line_of("return jnp.sin(x) * np.float32(by)")


@pytest.mark.parametrize(
    ("target", "texts", "is_equal"),
    [
        ("CustomSPMDPartitioning", ("140001", "140002"), True),
        ("other", ("140001", "140002"), False),
        ("other", ("<K at 0x7f0012ab>", "<K at 0x7f0012cd>"), True),
    ],
)
def test_addresses_do_not_count(target: str, texts: tuple[str, str], is_equal: bool) -> None:
    """JAX writes the address of a callback into the call of a custom partitioning."""
    text = """
module @jit_f {{
  func.func public @main(%0: tensor<f32>) -> tensor<f32> {{
    %1 = stablehlo.custom_call @{}(%0) {{backend_config = "{}"}} : (tensor<f32>) -> tensor<f32>
    return %1 : tensor<f32>
  }}
}}
"""
    one, other = (parsed(text.format(target, each)) for each in texts)
    assert (one.fingerprint == other.fingerprint) is is_equal


def test_regions_and_callbacks_are_read() -> None:
    """Every operation has a source; nothing of a location is left."""

    def step(x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            return jax.nn.relu(carry) @ carry, carry.sum()

        x, sums = jax.lax.scan(body, x, None, length=13)
        x = jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x)
        jax.debug.print("loc({})", sums)
        return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct((11, 11), np.float32), x)

    # Sizes that no other test has: JAX keeps its own inner functions with the lines that first
    # traced them.
    program = lowered(step, jnp.ones((11, 11)))
    assert all("loc(" not in each.text for each in program.operations)
    found = [each for each in program.operations[2:] if not each.text.startswith("  return")]
    assert all(each.source.startswith(__file__) for each in found)
    # The reduction in the loop has an operation inside that has no line of its own.
    (last,) = (each for each in found if "custom_call" in each.text and "%1#2" not in each.text)
    assert last.source == line_of("return jax.pure_callback(np.asarray")
    saved = json.loads(json.dumps(program.to_json()))
    assert LoweredProgram.from_json(saved) == program
    assert LoweredProgram.from_json(saved).fingerprint == saved["fingerprint"]
