"""Laws about flatten and unflatten."""

import dataclasses
import functools
import operator
import sys
from collections import Counter
from itertools import chain
from types import CodeType, FrameType
from typing import Any, Final

import jax

from leafwise._classes.spec import is_decorated, is_static_metadata
from leafwise._jit.jax_errors import as_static
from leafwise._objects.interrupts import or_default
from leafwise._trees.roles import FieldNames, field_order, is_kept, undeclared
from leafwise._trees.update import replace as replace_fields
from leafwise.errors import message_of
from leafwise.testing._format import short_repr
from leafwise.testing._laws.case import Case
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.libraries import library_of
from leafwise.testing._laws.same import difference, getters, state_of
from leafwise.testing.strategies._constructor import parameters_of
from leafwise.testing.strategies._edit_positions import path_of
from leafwise.testing.strategies._leaves import is_numeric, is_ref, same_leaf, struct_of


def round_trip(case: Case) -> None:
    """Flatten, then unflatten twice: JAX makes many instances from one treedef."""
    leaves, structure = case.flatten(case.instance)
    _check_map(case, case.attempt("unflatten", structure.unflatten, leaves))
    again, fix = "a second unflatten of one treedef", "let unflatten leave aux_data as it is"
    _check_map(case, case.attempt(again, structure.unflatten, leaves, by_hand=fix))


def _check_map(case: Case, result: Any) -> None:
    """Fail unless an instance has the same statics, and the very same leaves."""
    x = case.instance
    kept = tuple(name for name in case.names.static if is_kept(x, name) is not False)
    fix = Law.TRANSFORMATIONS.fix if case.law is Law.IDENTITY_MAP else ""
    case.check_same(result, only=kept, by_hand=fix)
    case.check_same(result, only=case.names.dynamic)
    (leaves, _), (flat, _) = case.flatten(x), case.flatten(result)
    if not _are_same(flat, leaves):
        pairs = zip(jax.tree_util.tree_leaves_with_path(x), flat, strict=False)
        others = (path_of(x, path, leaf) for (path, leaf), new in pairs if new is not leaf)
        wanted = f"the very same objects, in order: {short_repr(leaves)}"
        case.fail(next(others, ""), f"the leaves {_other_leaves(flat, leaves)}", wanted)


def _are_same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _other_leaves(flat: list[Any], leaves: list[Any]) -> str:
    """Return leaves as text, with how they differ from others that print alike."""
    text = short_repr(flat)
    if text != short_repr(leaves):
        return text
    is_same = set(map(id, flat)) == set(map(id, leaves))
    how = "in another order" if is_same else "new ones, as `asdict` or `__post_init__` makes them"
    return f"{text} ({how})"


def checks_shapes(structure: Any, leaves: list[Any]) -> bool:
    """Return whether unflatten accepts structs of the leaves but not of a batch of them."""
    for batch in ((), (2,)):
        try:
            structure.unflatten([struct_of(leaf, *batch) for leaf in leaves])
        except Exception:  # noqa: BLE001  # user code
            return bool(batch)  # refusing any struct breaks the law
    return False


def any_leaf(case: Case) -> None:
    """Unflatten with leaves that no constructor would accept, and with structs and tracers."""
    leaves, structure = case.flatten(case.instance)
    structs = [struct_of(leaf) for leaf in leaves]
    batch = structs if checks_shapes(structure, leaves) else [struct_of(x, 2) for x in leaves]
    for strange in (object(), batch, "text", None):
        is_batch = strange is batch
        what = f"unflatten with {'ShapeDtypeStruct' if is_batch else type(strange).__name__}"
        children = batch if is_batch else [strange] * len(leaves)
        if strange is None:  # JAX puts it where its own leaves were, not for any other object
            children = [None if is_numeric(leaf) else leaf for leaf in leaves]
        _check_kept(case, case.attempt(what, structure.unflatten, children), children)

    def with_tracers(*tracers: Any) -> None:
        instance = case.attempt("unflatten with tracers", structure.unflatten, tracers)
        _check_kept(case, instance, list(tracers))

    jax.eval_shape(with_tracers, *structs)


AUX_DATA_FIX: Final = (
    "build aux_data from the statics alone, as they are: what flatten creates, such as a lambda, a "
    "NaN or a tuple of a set, equals no other"
)

_NONE_FIX: Final = (
    "return the same children and aux_data where a child is None, as `in_axes` may have it: a "
    "treedef of the children, in aux_data, depends on that"
)

_BY_VALUE_FIX: Final = (
    "decide by field, not by value, what is a leaf: `jax.tree.map(lambda leaf: 0, x)` has lost its "
    "leaves, and `jax.vmap` raises if given that as in_axes"
)


def _check_kept(case: Case, result: Any, children: list[Any]) -> None:
    """Fail unless an instance that was unflattened has the children, and the same treedef."""
    if type(result) is not case.cls:
        case.fail("", f"a {type(result).__qualname__}", f"a {case.cls.__qualname__}")
    # None is not a leaf: only the root node can be compared.
    is_none = any(child is None for child in children)
    leaves, after = (children, case.node(result)) if is_none else case.flatten(result)
    if _are_same(leaves, children):
        before = case.node(case.instance) if is_none else case.structure(case.instance)
        if not case.same_structure(before, after):
            got = f"{short_repr(after, 100)} with {'None' if is_none else 'others'} for the leaves"
            fix = _NONE_FIX if is_none else AUX_DATA_FIX
            case.fail("", got, f"{short_repr(before, 100)}, whatever the leaves", by_hand=fix)
        return
    wanted = f"{short_repr(children)}, as it was put in"
    fields = {name: jax.tree_util.tree_leaves(part) for name, part in state_of(result).items()}
    if len(leaves) < len(children) and not _lost(children, [*chain(*fields.values())]):
        got = f"{short_repr(leaves)} out of flatten, though unflatten has stored each"
        case.fail("", got, wanted, by_hand=_BY_VALUE_FIX)
    changed = (name for name in case.names.dynamic if _lost(fields.get(name, []), children))
    others = _other_leaves(leaves, children)
    fix = Law.ROUND_TRIP.fix if others != short_repr(leaves) else ""
    case.fail(next(changed, ""), f"{others} out of flatten", wanted, by_hand=fix)


def _lost(leaves: list[Any], kept: list[Any]) -> bool:
    return not set(map(id, leaves)) <= set(map(id, kept))


def identity_map(case: Case) -> None:
    """Map the identity over one tree, and over two."""

    def identity(leaf: Any, *_: Any) -> Any:
        return leaf

    x = case.instance
    once = case.attempt("jax.tree.map", jax.tree.map, identity, x)
    _check_map(case, once)
    is_same = case.same_structure(case.structure(x), case.structure(once))
    two, fix = "jax.tree.map of two equal trees", "" if is_same else AUX_DATA_FIX
    twice = case.attempt(two, jax.tree.map, identity, x, once, by_hand=fix)
    _check_map(case, twice)


def stable_treedef(case: Case) -> None:
    """Flatten, read all that can be read, and flatten again."""
    x, first = case.instance, case.structure(case.instance)
    if not case.same_structure(first, case.structure(x)):
        case.fail("", "two flattenings of one instance differ", f"{first} both times")
    for name, read in getters(x):
        try:
            read()
        except Exception:  # noqa: BLE001, S112  # a property may raise
            continue
        now = case.structure(x)
        if not case.same_structure(first, now):
            path = "" if name in ("repr", "hash") else name
            case.fail(path, f"{now} after {name} was read", f"{first}, as before")


def key_paths(case: Case) -> None:
    """Follow each key of a path to its child."""
    x = case.instance
    flatten: Any = jax.tree_util.tree_flatten_with_path
    pairs, named = case.attempt("flatten with paths", flatten, x)
    leaves, again = case.flatten(x)[0], case.flatten(x)[0]
    is_copied = any(map(operator.is_not, leaves, again))  # reported by the law `round-trip`
    if [id(leaf) for _, leaf in pairs] != [id(leaf) for leaf in leaves] and not is_copied:
        got = ", ".join(f"{jax.tree_util.keystr(path)}: {short_repr(leaf)}" for path, leaf in pairs)
        fix = "return the children with keys in the order of those without"
        wanted = f"the order without paths: {short_repr(leaves)}"
        case.fail("", f"with paths: {got}", wanted, by_hand=fix)
    plain = case.structure(x)
    if not case.same_structure(named, plain):
        has_keys = hasattr(case.cls, "tree_flatten_with_keys")
        fix = "return the same aux_data with keys" if has_keys else AUX_DATA_FIX
        case.fail("", "another treedef with paths", "the one without paths", by_hand=fix)
    if isinstance(x, tuple):
        return  # JAX names them; before 0.11, all after the first child
    level: Any = jax.tree_util.default_registry.flatten_one_level_with_keys(x)
    keys = Counter(jax.tree_util.keystr((key,)) for key, _ in level[0])
    for key, count in keys.items():
        if count > 1:
            got = f"{count} children with the key {key}"
            fix = "give each child a key of its own"
            case.fail(key.lstrip("."), got, "one key for each child", by_hand=fix)
    for key, child in level[0]:
        if jax.tree_util.tree_leaves(child):
            _follow(case, x, key, child)


def _follow(case: Case, x: Any, key: Any, child: Any) -> None:
    name = jax.tree_util.keystr((key,)).lstrip(".")
    missing = object()
    if isinstance(key, jax.tree_util.GetAttrKey):
        part = getattr(x, key.name, missing)
    elif isinstance(key, jax.tree_util.DictKey | jax.tree_util.SequenceKey):
        try:
            part = x[key.key if isinstance(key, jax.tree_util.DictKey) else key.idx]
        except (LookupError, TypeError):
            return  # the key only names the child
    else:
        return
    field = next((field for field, value in state_of(x).items() if value is child), "")
    fix = f"pair it with `jax.tree_util.GetAttrKey({field!r})`" if field else ""
    text = short_repr(child)
    if part is missing:
        case.fail(name, f"there is no attribute {name!r}", f"the child {text} there", fix=fix)
    leaves, wanted = (jax.tree_util.tree_leaves(tree) for tree in (part, child))
    pairs = zip(leaves, wanted, strict=False)
    is_there = all(one is leaf or (is_ref(leaf) and same_leaf(one, leaf)) for one, leaf in pairs)
    if len(leaves) != len(wanted) or not is_there:
        got = f"{text} is flattened with this key"
        case.fail(name, got, f"{short_repr(part)}, which is there", fix=fix)


def replace(case: Case) -> None:
    x: Any = case.instance
    what = next((name for name in ("replace", "_replace") if hasattr(case.cls, name)), "")
    change: Any = getattr(x, what, None)
    if is_decorated(case.cls):
        what, change = "leafwise.replace", functools.partial(replace_fields, x)
    elif not callable(change):
        if not dataclasses.is_dataclass(case.cls):
            return
        what, change = "dataclasses.replace", functools.partial(dataclasses.replace, x)
    try:
        result = change()
    except (TypeError, ValueError):
        return  # it needs arguments, or the constructor does not accept the fields
    except Exception:  # noqa: BLE001  # user code
        result = case.attempt(what, change)
    if type(result) in case.cls.__mro__[1:-1]:
        got, fix = f"a {type(result).__qualname__} after {what}", "let it return a `type(self)`"
        case.fail("", got, f"a {case.cls.__qualname__}", by_hand=fix)
    if not isinstance(result, case.cls):
        return  # another method of that name
    case.check_same(result, f"after {what} without changes")


def post_init(case: Case) -> None:
    """Profile unflatten for calls of `__post_init__`."""
    codes: set[Any] = set()
    for base in case.cls.__mro__:
        function: Any = base.__dict__.get("__post_init__")
        while function is not None:
            codes.add(getattr(function, "__code__", None))
            function = getattr(function, "__wrapped__", None)
    if not codes:
        return
    leaves, structure = case.flatten(case.instance)
    problem, runs = "", list[CodeType]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            runs.append(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        structure.unflatten(leaves)
    except Exception as error:  # noqa: BLE001  # other laws report it unless `__post_init__` ran
        problem = f", and raised {type(error).__name__}: {message_of(error)}"
    finally:
        sys.setprofile(before)
    if runs:
        case.fail("", f"__post_init__ ran at unflatten{problem}", "only construction runs it")


def _static_fix(cls: type, name: str) -> str:
    """Return how flatten can put a field that is declared static into the aux_data."""
    if library_of(cls) != "JAX":
        return f"make it {as_static(cls, name)}"
    by_method = hasattr(cls, "tree_flatten")
    where = "that tree_flatten returns" if by_method else f"where {cls.__name__} is registered"
    return f"leave it out of the children, and put it into the aux_data {where}"


def _is_cache(instance: Any, name: str) -> bool:
    """Return whether an attribute is named as a cache, or there once all that can be is read."""
    for _, read in getters(instance):
        or_default(None)(read)()
    return name.startswith("_cache") or hasattr(instance, name)


def no_hidden_state(case: Case) -> None:
    """Find attributes that are neither children nor statics."""
    x = case.instance
    shown: dict[str, str] = {}  # private attribute: the property that returns it
    for parameter in parameters_of(case.cls):
        private = f"_{parameter.name}"
        shown[private] = parameter.name if hasattr(case.cls, parameter.name) else private
        if isinstance(parameter.kind, dataclasses.Field) and parameter.name in case.names.dynamic:
            got = (
                "its annotation is a `dataclasses.Field`: `:` was written for `=`, so that the "
                "field is dynamic"
            )
            fix = f"write the type: `{parameter.name}: Any = field()`"
            case.fail(parameter.name, got, "a type, and the field as a default", fix=fix)
    for field in dataclasses.fields(x) if dataclasses.is_dataclass(x) else ():
        if is_static_metadata(field.metadata) and field.name in case.names.dynamic:
            got = "it is declared static, and flattened as a child"
            case.fail(field.name, got, "a static", fix=_static_fix(case.cls, field.name))
    leaves, structure = case.flatten(x)
    again = case.attempt("unflatten", structure.unflatten, leaves)
    for name in dict.fromkeys((*field_order(x), *undeclared(x))):
        if name in case.names.dynamic or not hasattr(x, name) or is_kept(x, name) is not False:
            continue
        if name.startswith("_") and name not in shown and _is_cache(again, name):
            continue
        public = shown.get(name, name)
        try:
            change = difference(x, again, FieldNames((public,), ()))
        except Exception:  # noqa: BLE001  # a property may raise
            public = name
            change = difference(x, again, FieldNames((name,), ()))
        if change is not None and change[0]:
            kind = type(getattr(x, name)).__name__.replace("ArrayImpl", "jax.Array")
            code = f"{name}: {kind} = lw.{'static_' * ('.' not in kind)}field(init=False)"
            fix = f"declare it in the class: `{code}`" if is_decorated(case.cls) else ""
            path = name + change[0].removeprefix(public)
            case.fail(path, f"{change[1]} after flatten and unflatten", change[2], fix=fix)
