"""What is planted must be found: a check that cannot fail is no check."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

from .asked import kinds, report_of
from .conftest import GOOD, Check, Write


@lw.pytree
class Sound:
    x: jax.Array
    n: lw.Static[int] = 2


def test_a_prediction_that_is_blind(
    write: Write, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all changes are predicted to reuse the program, each retrace is a mismatch."""
    explain = lw.types.Signature.explain
    monkeypatch.setattr(lw.types.Signature, "explain", lambda after, _: explain(after, after))
    outcome = check(write(GOOD), "--output-format=json")
    assert outcome.code == 1
    rows = outcome.document["classes"][0]["rows"]
    wrong = {(row["field"], row["kind"]) for row in rows if row["verdict"] == "mismatch"}
    everything = {(row["field"], row["kind"]) for row in rows}
    assert wrong == everything - {("x", "value")}
    assert all(row["note"] for row in rows if row["verdict"] == "mismatch")
    assert "wrong" in check(write(GOOD)).out.splitlines()[-1]


@jax.tree_util.register_pytree_node_class
class Nosy:
    """A foreign node whose key contains its leaf."""

    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf

    def tree_flatten(self) -> tuple[tuple[Any], str]:
        return (self.leaf,), str(self.leaf)

    @classmethod
    def tree_unflatten(cls, _key: str, leaves: tuple[Any]) -> "Nosy":
        return cls(*leaves)


def test_a_dynamic_value_in_the_key() -> None:
    """A dynamic value that retraces is a violation: as predicted, and not as promised."""

    @lw.pytree
    class Holder:
        node: Any = lw.field(default_factory=lambda: Nosy(jnp.ones(3)))

    row = kinds(report_of(Holder), "node")["value"]
    assert (row.verdict, row.predicted, row.traces) == ("violation", "retrace", 1)
    assert "dynamic" in row.note


def test_what_a_class_computes_is_no_trace_of_the_function() -> None:
    """What is traced and compiled while an instance is rebuilt is not counted."""

    @flax.struct.dataclass
    class Computes:
        x: Any

        def __post_init__(self) -> None:
            if isinstance(self.x, jax.Array):
                # A program of its own for each shape, within the trace and beside it.
                object.__setattr__(self, "norm", jax.jit(lambda x: x * 2)(self.x))

    report = report_of(Computes)
    assert report.rows, report
    assert {row.verdict for row in report.tried} == {"ok"}, report


def test_with_a_compilation_cache(tmp_path: Any) -> None:
    """Programs from JAX's cache on disk count as compiles: the verdicts stay."""
    names = {
        "jax_compilation_cache_dir": str(tmp_path / "cache"),
        "jax_persistent_cache_min_compile_time_secs": 0,
    }
    before = {name: getattr(jax.config, name) for name in names}
    try:
        for name, value in names.items():
            jax.config.update(name, value)
        assert report_of(Sound) == report_of(Sound)
        assert report_of(Sound).passed
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def test_inside_of_checks_of_statics() -> None:
    """The command works with ``LEAFWISE_CHECK_STATICS`` on."""
    with lw.debug.check_statics():
        assert report_of(Sound).passed
