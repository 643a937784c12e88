"""Why JAX's persistent cache missed, on JAX itself."""

import logging
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax._src import cache_key
from jax.experimental.compilation_cache import compilation_cache

import leafwise as lw

from .conftest import NAMES

pytestmark = pytest.mark.usefixtures("cache_dir")


def misses(*calls: tuple[Any, ...], **options: Any) -> list[str]:
    """Return what `lw.watch` says of the compiles of a new function, called with each."""

    def step(x: Any) -> Any:
        return x * 3 + 1

    arguments = [[jnp.asarray(each) for each in call] for call in calls]
    step = jax.jit(step, **options)
    with lw.watch(eager=False) as log:
        for each in arguments:
            step(*each)
    assert log.cache_misses == [each for each in log.compiles if not each.cached]
    assert len(log.compiles) == len(log.cache_misses) + len(log.cache_hits)
    return [each.miss for each in log.compiles]


def test_what_was_written_is_found() -> None:
    """What a miss has written is a hit afterwards, which has no reason."""
    assert misses((1.0,)) == ["not found; written now"]
    assert misses((1.0,)) == [""]


def test_a_program_says_so() -> None:
    """The record of a program, and the text of a log, have what the cache answered."""
    x = jnp.ones(3)

    def step(x: Any) -> Any:
        return x * 5

    jax.jit(step)(x)
    mine = lw.jit(step)
    with lw.watch(eager=False) as log:
        mine(x)
    assert "1 compile (persistent cache: 1 hit, 0 missed)" in str(log)


def test_limits_are_named() -> None:
    """A program that is too quick or too small to be written is missed each time, and why."""
    jax.config.update(NAMES[2], 1000.0)
    words = f"not found; not written, as it compiled faster than {NAMES[2]}=1000"
    assert [misses((1.0,)), misses((1.0,))] == [[words]] * 2
    jax.config.update(NAMES[2], 0.0)
    jax.config.update(NAMES[3], 1 << 30)
    assert misses((1.0,)) == [
        f"not found; not written, as it is smaller than {NAMES[3]}={1 << 30}",
    ]


rate = 1.0


def named(factor: float) -> Any:
    """Return a new function of one name and line, which captures two numbers."""

    def step(x: Any, n: int = 0) -> Any:
        return x * rate * factor - n

    return step


@pytest.mark.parametrize("jit", [jax.jit, lw.jit], ids=["jax", "leafwise"])
def test_the_part_of_the_key_that_changed(jit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a function that was compiled before with the same inputs, the parts that differ."""
    one, other = (jit(named(factor), static_argnames="n") for factor in (2.0, 3.0))
    found, changed = "not found; written now", "not found: the program changed since"
    with lw.watch(eager=False) as log:
        for function in (one, other):
            function(1.0)
            function(jnp.ones(2))
            function(1.0, n=1)
        monkeypatch.setitem(globals(), "rate", 5.0)
        jax.clear_caches()
        for function in (other, one):
            function(1.0, n=1)
    words = [each.miss for each in log.compiles]
    assert words == [found] * 6 + [f"{changed} it was last compiled; written now"] * 2

    step = named(7.0)
    with lw.watch(eager=False) as log:
        jax.jit(step)(1.0)
        jax.jit(step, compiler_options={"xla_embed_ir_in_executable": True})(1.0)
    assert log.compiles[1].miss == (
        "not found: the compile options changed since it was last compiled; written now"
    )


def test_what_jax_logs_in_another_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of that log with more, fewer or no parts is passed on, and ends no compile."""
    logger, make = logging.getLogger("jax._src.cache_key"), cache_key.get

    def get(*args: Any, **options: Any) -> Any:
        logger.debug("hash of serialized %s: %s %s", "XLA flags", "8d", "3f")
        logger.debug("hash of serialized %(part)s", {"part": "XLA flags"})
        logger.debug(ValueError("hash of serialized"))
        return make(*args, **options)

    monkeypatch.setattr(cache_key, "get", get)
    assert misses((1.0,), (2,)) == ["not found; written now"] * 2


@pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="JAX writes them since 0.11")
def test_callbacks_are_not_written() -> None:
    """JAX 0.10 writes no program that calls back, which is what is left as a reason."""

    def step(x: Any) -> Any:
        jax.debug.callback(lambda _: None, x)
        return x

    with lw.watch(eager=False) as log:
        jax.jit(step)(1.0)
    assert log.compiles[0].miss.startswith("not found; not written, as it has host callbacks")


def test_nothing_is_said_while_it_is_off() -> None:
    """Without a folder, or switched off, there are neither misses nor words."""
    for name, value in ((NAMES[1], False), (NAMES[0], None)):
        jax.config.update(name, value)
        compilation_cache.reset_cache()
        with lw.watch(eager=False) as log:
            jax.jit(lambda x: x + 2)(1.0)
        assert len(log.compiles) == 1
        assert not log.cache_misses
        assert "persistent cache" not in str(log)
        jax.config.update(NAMES[1], True)


def test_jax_log_is_as_before(caplog: pytest.LogCaptureFixture) -> None:
    """What JAX logs of keys, and at which level, does not change: neither during nor after."""
    logger = logging.getLogger("jax._src.cache_key")
    before = logger.level, list(logger.filters)
    caplog.set_level(logging.INFO)
    misses((2.0,), ([1.0],))
    assert not [each for each in caplog.records if each.name == logger.name]
    assert (logger.level, list(logger.filters)) == before
    caplog.set_level(logging.DEBUG, logger.name)
    misses((3,))
    assert [each for each in caplog.records if "hash of serialized" in each.message]
