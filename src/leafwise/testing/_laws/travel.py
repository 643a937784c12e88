"""Laws about copies, pickles in another process, and transformations."""

import contextlib
import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._compare.changes import is_function
from leafwise._objects.attributes import compares_by_identity
from leafwise._objects.interrupts import or_default
from leafwise._objects.parts import is_key
from leafwise._objects.source.code import is_importable
from leafwise._trees.equality import first_difference
from leafwise._trees.roles import exchange
from leafwise.testing._format import format_error, format_leaf
from leafwise.testing._laws.case import Case
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.libraries import ANOTHER_TREEDEF, by_value_fix
from leafwise.testing._laws.other_process import PROCESS, UnpickleRequest, folder_of
from leafwise.testing._laws.same import difference, state_of
from leafwise.testing._laws.structure import AUX_DATA_FIX, checks_shapes
from leafwise.testing.strategies._edit_positions import path_of
from leafwise.testing.strategies._leaves import is_numeric, same_leaf

_REGISTRY: Final = jax.tree_util.default_registry

Function = Callable[[Any], Any]


def copies(case: Case) -> None:
    x = case.instance
    _compare(case, "copy.copy", copy.copy, lambda part: part)  # it shares the parts
    # The memo keeps arrays as they are: copying one would compile a program for each shape.
    arrays = {id(leaf): leaf for leaf in case.flatten(x)[0] if isinstance(leaf, jax.Array)}

    def deepcopy(value: Any) -> Any:
        return copy.deepcopy(value, dict(arrays))

    copied = {"copy.deepcopy": _compare(case, "copy.deepcopy", deepcopy, deepcopy)}
    if _is_found_elsewhere(case.cls):
        copied["pickle"] = _compare(case, "pickle", _pickled, _pickled)
    for how, result in copied.items():
        if result is not None:
            _check_treedef(case, how, result)


def _compare(case: Case, how: str, do: Function, do_part: Function) -> Any | None:
    """Return a copy, compared with the instance; None if the parts cannot be copied."""
    try:
        result = do(case.instance)
    except Exception:  # noqa: BLE001  # user code
        if not _parts_allow(case.instance, do_part):
            return None
        result = case.attempt(how, do, case.instance)
    _check_copy(case, result, f"after {how}", do_part)
    before, after = (len(case.flatten(tree)[0]) for tree in (case.instance, result))
    if after != before:
        case.fail("", f"{after} leaves after {how}", f"{before} leaves")
    return result


def _check_treedef(case: Case, how: str, result: Any) -> None:
    """Fail if a static other than a function compares by identity: a copy has another treedef."""
    recreated: dict[str, type] = {}
    with contextlib.suppress(Exception):  # reported by the law `treedef-equality`
        for name in case.names.static if case.node(case.instance) != case.node(result) else ():
            before, after = getattr(case.instance, name), getattr(result, name)
            path, one, other = first_difference(before, after, name)
            if one is not other and compares_by_identity(type(one)) and not is_function(one):
                recreated[path] = type(one)
    for path, kind in recreated.items():
        got, fix = f"another {kind.__name__}, {ANOTHER_TREEDEF} {how}", by_value_fix(kind)
        case.fail(path, got, "an equal one, so that no copy retraces", fix=fix)


def _pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))  # noqa: S301  # made here


@or_default(default=False)  # a user's `__reduce__`, `__deepcopy__` and the like
def _parts_allow(x: Any, do: Function) -> bool:
    """Return whether each part can be copied by itself: if not, the class is not to blame."""
    children, aux = _REGISTRY.flatten_one_level(x) or ((), None)
    for value in (*state_of(x).values(), *children, aux):
        do(value)
    return True


def _check_copy(case: Case, result: Any, how: str, do_part: Function) -> None:
    """Fail if a copy differs in an attribute whose value survives a copy by itself."""
    x, names = case.instance, case.names

    @or_default(default=False)
    def is_kept(name: str) -> bool:  # copying a function may create another one
        alone = exchange(x, name, do_part(getattr(x, name)))
        return difference(x, alone, names, (name,)) is None

    if difference(x, result, names) is not None:
        case.check_same(result, how, tuple(filter(is_kept, (*names.static, *names.dynamic))))


def _is_found_elsewhere(cls: type) -> bool:
    return is_importable(cls) and cls.__module__ != "__main__"


def fresh_process(case: Case) -> None:
    """Unpickle in a process that has not imported the class and hashes strings differently."""
    x = case.instance
    if not _is_found_elsewhere(case.cls) or not _parts_allow(x, _pickled):
        return
    names = case.names.static
    level: Any = _REGISTRY.flatten_one_level(x)
    try:
        pickles = [pickle.dumps(x)]
        for value in (x, level[1], *(getattr(x, name) for name in names)):
            with contextlib.suppress(TypeError):
                hash(value)  # a cached hash would be pickled
        pickles.append(pickle.dumps(x))
    except Exception:  # noqa: BLE001  # the law `copies` reports it
        return
    with contextlib.suppress(Exception):  # aux_data need not pickle
        pickles.append(pickle.dumps(level[1]))
    if any(b"__main__" in data for data in pickles):
        return  # there it would be another module
    module = case.cls.__module__
    paths = [*folder_of(module), *filter(None, sys.path)]
    try:
        answer = PROCESS.ask(UnpickleRequest(paths, module, names, pickles))
    except EOFError:
        case.fail("", "a new process ended while it unpickled it", "an instance")
    if answer.missing:
        return  # a module could not be imported: the class is not to blame
    if answer.problem:
        # Also that of a hash: it is due to a static, in whichever class.
        got = f"in a new process, {answer.problem}"
        case.fail(answer.path, got, "an equal instance", fix=answer.fix)
    try:
        back = pickle.loads(answer.back)  # noqa: S301  # sent from here
    except Exception as error:  # noqa: BLE001  # user code
        case.fail("", f"back from a new process, {format_error(error)}", "an equal instance")
    _check_copy(case, back, "back from a new process", _pickled)


def transformations(case: Case) -> None:
    x = case.instance
    leaves, structure = case.flatten(x)
    if not all(map(is_numeric, leaves)):
        return  # a jitted function does not accept it
    for what, (run, keeps_leaves) in _TRANSFORMATIONS.items():
        if what == "jax.vmap" and (not leaves or checks_shapes(structure, leaves)):
            continue  # nothing to map over, or the class refuses a batch

        def inside(traced: Any, what: str = what) -> Any:
            case.check_same(traced, f"inside {what}", case.names.static)
            return traced

        result = case.attempt(what, run, inside, x, by_hand=Law.ANY_LEAF.fix)
        case.check_same(result, f"out of {what}", case.names.static)
        after = case.structure(result)
        if not case.same_structure(structure, after):
            wanted = f"{structure}, as it went in"
            case.fail("", f"{after} out of {what}", wanted, by_hand=AUX_DATA_FIX)
        pairs = jax.tree_util.tree_leaves_with_path(result) if keeps_leaves else ()
        for (path, leaf), wanted in zip(pairs, leaves, strict=False):
            if not same_leaf(jnp.asarray(leaf), jnp.asarray(wanted)):
                where = path_of(result, path, leaf)
                got = f"{format_leaf(leaf)} out of {what}"
                fix = Law.IDENTITY_MAP.fix
                case.fail(where, got, f"{format_leaf(wanted)}, as it went in", by_hand=fix)


def _jit(function: Function, x: Any) -> Any:
    jax.jit(function).trace(x)
    return x  # `eval_shape` already checks the result


def _checkpoint(function: Function, x: Any) -> Any:
    return jax.checkpoint(function)(x)


def _grad(function: Function, x: Any) -> Any:
    def total(tree: Any) -> Any:
        leaves = jax.tree_util.tree_leaves(function(tree))
        numbers = [leaf for leaf in leaves if jnp.issubdtype(jax.typeof(leaf).dtype, jnp.inexact)]
        return sum((jnp.sum(jnp.real(leaf)).astype(float) for leaf in numbers), jnp.zeros(()))

    gradient: Any = jax.grad(total, allow_int=True)
    return jax.eval_shape(gradient, x)


def _scan(function: Function, x: Any) -> Any:
    def step(carry: Any, _: None) -> tuple[Any, None]:
        return function(carry), None

    def run(x: Any) -> Any:
        return jax.lax.scan(step, x, None, length=2)[0]

    return jax.eval_shape(run, jax.tree.map(_as_array, x))


_TRANSFORMATIONS: Final[dict[str, tuple[Callable[[Function, Any], Any], bool]]] = {
    "jax.jit": (_jit, False),
    "jax.vmap": (lambda f, x: jax.tree.map(_first, jax.vmap(f)(jax.tree.map(_twice, x))), True),
    "jax.eval_shape": (jax.eval_shape, False),
    "jax.grad": (_grad, False),
    "lax.scan": (_scan, False),
    "jax.checkpoint": (_checkpoint, True),
}
"""How each is called, mostly just traced, and whether it returns the leaves it was given."""


def _as_array(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.Array) else jax.device_put(leaf)


def _twice(leaf: Any) -> Any:
    if is_key(leaf):
        return jnp.stack([leaf] * 2)
    # NumPy compiles nothing for each shape.
    return jax.device_put(np.stack([np.asarray(_as_array(leaf))] * 2))


def _first(leaf: Any) -> Any:
    return leaf[0] if is_key(leaf) else jax.device_put(np.asarray(leaf)[0])


def no_tracer_leaks(case: Case) -> None:
    """Flatten and unflatten inside a trace under `jax.checking_leaks`."""
    x = case.instance
    if not all(map(is_numeric, case.flatten(x)[0])):
        return

    def function(traced: Any) -> Any:
        parts, structure = case.flatten(traced)
        return structure.unflatten(parts)

    try:
        with jax.checking_leaks():
            jax.eval_shape(function, x)
    except Exception as error:  # noqa: BLE001  # JAX raises a plain Exception
        # The first lines: what leaked, and where it was created.
        problem = " ".join(map(str.strip, str(error).splitlines()[:4]))
        if "Leaked" in problem:  # other errors are reported by other laws
            case.fail("", f"jax.checking_leaks found a leak: {problem}", "no tracer is kept")
