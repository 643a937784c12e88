"""The options and attributes of `jit`, and the errors."""

import copy
import gc
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.sharding import SingleDeviceSharding

from .scenarios import Jit, Scenario, ones, scenario


@scenario
def statics_by_position_and_name(jit: Jit) -> Any:
    def f(x: Any, n: Any = 1) -> Any:
        return x + n

    jitted = jit(f, static_argnames="n")
    jitted(1.0)
    jitted(1.0, 1)
    jitted(1.0, n=1)
    jitted(1.0, n=2)
    jitted(1.0, n=True)
    last = jit(lambda x, n: x + n, static_argnums=-1)
    last(1.0, 2)
    last(1.0, 3)
    last(1.0, n=2)
    return jitted._cache_size(), last._cache_size()


@scenario
def varargs(jit: Jit) -> Any:
    def f(*xs: Any, **named: Any) -> Any:
        return sum(xs) + len(named)

    jitted = jit(f, static_argnums=(0,))
    jitted(1, 1.0)
    jitted(1, 1.0, 1.0)
    jitted(1, 1.0, z=1.0)
    return jitted._cache_size()


@scenario
def donation_by_position(jit: Jit) -> Any:
    given = jnp.ones(3) + 1
    jit(lambda x: x + 1, donate_argnums=0)(given)
    return given.is_deleted()


@scenario
def keep_unused(jit: Jit) -> Any:
    def f(x: Any, y: Any) -> Any:
        return x

    texts = [jit(f, keep_unused=keep).lower(1.0, 2.0).as_text() for keep in (False, True)]
    return [text.count("%arg") for text in texts], texts


@scenario
def shardings(jit: Jit) -> Any:
    device = jax.devices()[-1]
    place = SingleDeviceSharding(device)
    jitted = jit(lambda x: x + 1, in_shardings=place, out_shardings=place)
    result = jitted(ones())
    jitted(jax.device_put(ones(), jax.devices()[0]))
    jitted(result)
    jitted(np.ones(3, np.float32))
    out = jit(lambda x: x + 1, out_shardings=place)
    out(ones())
    return str(result.sharding), str(out(1.0).sharding), jitted._cache_size()


@scenario
def ahead_of_time(jit: Jit) -> Any:
    def f(x: Any, y: Any = 2) -> Any:
        return x + y

    jitted = jit(f)
    lowered = jitted.lower(ones())
    traced = jitted.trace(ones())
    result = lowered.compile()(ones())
    shapes = jitted.eval_shape(jax.ShapeDtypeStruct((3,), np.float32))
    jitted(ones())
    words = lowered.as_text(), str(traced.jaxpr), traced.fun_name, str(shapes)
    return words, result.tolist(), jitted._cache_size()


@scenario
def parts_outlive_the_whole(jit: Jit) -> Any:
    lower, trace = jit(lambda x: x + 1).lower, jit(lambda x: x + 2).trace
    mapped, derived = jax.vmap(jit(lambda x: x + 3)), jax.grad(jit(lambda x: x * 4))
    gc.collect()
    texts = lower(1.0).as_text(), str(trace(1.0).jaxpr)
    return texts, mapped(ones()).tolist(), float(derived(1.0))


@scenario
def exported(jit: Jit) -> Any:
    def f(x: Any) -> Any:
        return x + 1

    made = export.export(jit(f))(jax.ShapeDtypeStruct((3,), np.float32))
    return made.fun_name, str(jax.make_jaxpr(jit(f))(ones()))


@scenario
def metadata(jit: Jit) -> Any:
    def f(x: Any, *, y: int = 2) -> Any:
        """Say something."""
        return x

    g = jit(f)
    names = g.__name__, g.__qualname__, g.__doc__, g.__module__
    same = g.__wrapped__ is f, inspect.unwrap(g) is f, copy.deepcopy(g) is g
    return names, same, str(inspect.signature(g)), callable(g), repr(g).split(" at 0x")[0]


@scenario
def caches_cleared(jit: Jit) -> Any:
    def f(x: Any) -> Any:
        return x + 1

    jitted = jit(f)
    jitted(1.0)
    jitted.clear_cache()
    sizes = [jitted._cache_size()]
    jitted(1.0)
    jax.clear_caches()
    sizes.append(jitted._cache_size())
    jitted(1.0)
    return [*sizes, jitted._cache_size()]


def _raiser(name: str, run: Scenario) -> None:
    run.__name__ = name
    scenario(run)


_raiser("static_without_a_hash", lambda jit: jit(lambda x, n: x, static_argnums=1)(1.0, [1]))
_raiser("static_out_of_range", lambda jit: jit(lambda x: x, static_argnums=5)(1.0))
_raiser("too_many_arguments", lambda jit: jit(lambda x: x)(1.0, 2.0))
_raiser("a_string", lambda jit: jit(lambda x: x)("a"))
_raiser("a_branch_on_a_tracer", lambda jit: jit(lambda x: 1 if x else 2)(1.0))
_raiser("static_and_donated", lambda jit: jit(lambda x: x, static_argnums=0, donate_argnums=0)(1))
