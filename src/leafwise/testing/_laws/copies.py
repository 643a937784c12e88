"""Laws of copies: in this process, and in another one."""

import contextlib
import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any, Final

import jax

from leafwise._objects.code import is_importable
from leafwise._trees.roles import exchange
from leafwise.testing._format import format_error
from leafwise.testing._laws.case import Case
from leafwise.testing._laws.other_process import PROCESS, UnpickleRequest, folder_of
from leafwise.testing._laws.same import difference, state_of

_REGISTRY: Final = jax.tree_util.default_registry

_Copy = Callable[[Any], Any]


def copies(case: Case) -> None:
    """Copy with copy, deepcopy and pickle."""
    x = case.instance
    _compare(case, "copy.copy", copy.copy, lambda part: part)  # which shares the parts
    # JAX compiles a program for each shape to copy an array, which is no matter of the class.
    arrays = {id(leaf): leaf for leaf in case.flatten(x)[0] if isinstance(leaf, jax.Array)}

    def deepcopy(value: Any) -> Any:
        return copy.deepcopy(value, dict(arrays))

    _compare(case, "copy.deepcopy", deepcopy, deepcopy)
    if _is_found_elsewhere(case.cls):
        _compare(case, "pickle", _pickled, _pickled)


def _compare(case: Case, how: str, do: _Copy, do_part: _Copy) -> None:
    x = case.instance
    try:
        made = do(x)
    except Exception:  # noqa: BLE001  # the user's own code
        if not _parts_allow(x, do_part):
            return
        made = case.attempt(how, do, x)
    _check_copy(case, made, f"after {how}", do_part)
    before, after = (case.flatten(each)[0] for each in (x, made))
    if len(after) != len(before):
        case.fail("", f"{len(after)} leaves after {how}", f"{len(before)} leaves")


def _pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))  # noqa: S301  # made here


def _parts_allow(x: Any, do: _Copy) -> bool:
    """Return whether each part alone can be copied: if not, the class is not to blame."""
    children, aux = _REGISTRY.flatten_one_level(x) or ((), None)
    try:
        for value in (*state_of(x).values(), *children, aux):
            do(value)
    except Exception:  # noqa: BLE001  # the user's own code
        return False
    return True


def _check_copy(case: Case, made: Any, how: str, do_part: _Copy) -> None:
    """Fail where a copy differs in an attribute that is kept if it is copied alone."""
    x, names = case.instance, case.names

    def is_kept(name: str) -> bool:  # a copied function may be another one
        try:
            alone = exchange(x, name, do_part(getattr(x, name)))
        except Exception:  # noqa: BLE001  # the user's own code
            return False
        return difference(x, alone, names, (name,)) is None

    if difference(x, made, names) is not None:
        case.check_same(made, how, tuple(filter(is_kept, (*names.static, *names.dynamic))))


def _is_found_elsewhere(cls: type) -> bool:
    """Return whether another process finds the class by its name."""
    return is_importable(cls) and cls.__module__ != "__main__"


def fresh_process(case: Case) -> None:
    """Unpickle in a process that has not imported the class, and hashes strings differently."""
    x = case.instance
    if not _is_found_elsewhere(case.cls) or not _parts_allow(x, _pickled):
        return
    names = case.names.static
    level: Any = _REGISTRY.flatten_one_level(x)
    try:
        first = pickle.dumps(x)
        for value in (x, level[1], *(getattr(x, name) for name in names)):
            with contextlib.suppress(Exception):
                hash(value)  # one that is cached would be pickled
        pickles = [first, pickle.dumps(x)]
    except Exception:  # noqa: BLE001  # the law `copies` reports it
        return
    with contextlib.suppress(Exception):  # aux_data need not pickle
        pickles.append(pickle.dumps(level[1]))
    if any(b"__main__" in each for each in pickles):
        return  # it is another module there
    module = case.cls.__module__
    paths = [*folder_of(module), *filter(None, sys.path)]
    try:
        answer = PROCESS.ask(UnpickleRequest(paths, module, names, pickles))
    except EOFError:
        case.fail("", "a new process ended while it unpickled it", "an instance")
    if answer.missing:
        return  # a module cannot be imported there: the class is not to blame
    if answer.problem:
        fix = case.law.fix if answer.path else ""  # of a static, whoever holds it
        case.fail(answer.path, f"in a new process, {answer.problem}", "an equal instance", fix=fix)
    try:
        back = pickle.loads(answer.back)  # noqa: S301  # what was sent
    except Exception as error:  # noqa: BLE001  # the user's own code
        case.fail("", f"back from a new process, {format_error(error)}", "an equal instance")
    _check_copy(case, back, "back from a new process", _pickled)
