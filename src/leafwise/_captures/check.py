"""The quick check of a capture: code that tests whether the parts of its value have changed.

It is made from the account of the value (`leafwise._statics.account`). If it finds a change, the
accounts are compared, which may say that nothing has changed. Nothing large is kept alive.
"""

import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from leafwise._captures.places import Names
from leafwise._objects.attributes import (
    dict_of,
    in_class,
    is_plain,
    keeps_in_dict,
    never_changes,
    registry_of,
)
from leafwise._objects.classes import is_a
from leafwise._objects.methods import BoundMethod
from leafwise._objects.parts import kind_of
from leafwise._objects.source.call_site import add_source
from leafwise._objects.source.code import facts_of
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import sha256_of
from leafwise._statics.account import (
    SIZED,
    AccountFold,
    Held,
    PartNode,
    Path,
    Step,
    WeakId,
    size_of,
)


class Grade(IntEnum):
    """What the identity of a value guarantees."""

    CHANGING = 0  # it may change in place
    FIXED = 1  # the same object always has the same value
    LIGHT = 2  # likewise, and it keeps no array alive


class Checked(NamedTuple):
    """Expressions that are all true while a value and its parts are unchanged."""

    terms: list[str]
    grade: Grade


class Terms:
    """The expressions for the value of an account and its parts; each is read once."""

    def __init__(self, fold: AccountFold, names: Names) -> None:
        self._fold = fold
        self._names = names
        self._grades: dict[int, Grade] = {}

    def of(self, path: Path, code: str) -> Checked:
        """Return the expressions for the part at a path; `code` reads it, and is used once."""
        node = self._fold.nodes[path]
        method = getattr(self, node.checked_by.name.lower())  # `exact` for `CheckedBy.EXACT`
        checked: Checked = method(node, path, code)
        self._grades.setdefault(id(node.value), max(checked.grade, Grade.FIXED))
        return checked

    def exact(self, node: PartNode, _path: Path, code: str) -> Checked:
        """Check a value that never changes, which is kept alive."""
        return Checked([f"{code} is {self._names.of('value', node.value)}"], Grade.LIGHT)

    def light(self, node: PartNode, _path: Path, code: str) -> Checked:
        """Check a function, a class or a module of a package."""
        return self._same(node.value, code, Grade.LIGHT)

    def same(self, node: PartNode, _path: Path, code: str) -> Checked:
        """Check an object by identity alone, as one that occurs again."""
        return self._same(node.value, code, self._grades.get(id(node.value), Grade.FIXED))

    def _parts(self, node: PartNode, path: Path, codes: Iterable[str]) -> list[Checked]:
        steps = [step for step, _ in node.parts]
        return [self.of((*path, step), code) for step, code in zip(steps, codes, strict=True)]

    def _size(self, code: str, size: int) -> str:
        return f"{self._names.of('len', len)}({code}) == {size}"

    def _type(self, code: str, variable: str, value: Any) -> str:
        names = self._names
        return f"{names.of('type', type)}({variable} := {code}) is {names.of('kind', type(value))}"

    def _same(self, value: Any, code: str, grade: Grade = Grade.FIXED) -> Checked:
        """Check that a value is the same object, and has as many items."""
        names, identity, size = self._names, WeakId(value), size_of(value)
        if identity.is_weak and (grade is not Grade.LIGHT or names.is_weak):
            return Checked([f"{names.of('ref', identity.find)}() is {code} is not None"], grade)
        if size is None:
            return Checked([f"{code} is {names.of('value', value)}"], grade)
        variable = names.local()
        is_same = f"({variable} := {code}) is {names.of('value', value)}"
        return Checked([is_same, self._size(variable, size)], grade)

    def _with_terms(
        self, value: Any, code: str, variable: str, terms: list[str], grade: Grade
    ) -> Checked:
        """Check that a value is the same object, and that the terms about its parts are true."""
        if not terms:
            return self._same(value, code, grade)
        itself = self._same(value, f"({variable} := {code})", grade)
        return Checked([*itself.terms, *terms], Grade.CHANGING)

    def content(self, node: PartNode, path: Path, code: str) -> Checked:
        """Check a value by its content and its parts, as listed in the table of kinds."""
        variable = self._names.local()
        is_by_steps = type(node.value) in (functools.partial, types.MethodType, BoundMethod)
        read = self._steps_of if is_by_steps else self._items_of
        codes, terms = read(node, variable)
        parts = self._parts(node, path, codes)
        grade = _lowest(parts) if _is_tuple(node) else Grade.CHANGING
        if grade is Grade.LIGHT:  # (optimizer.init, optimizer.update)
            return self._same(node.value, code, grade)
        return Checked([self._type(code, variable, node.value), *terms, *_all(parts)], grade)

    def _steps_of(self, node: PartNode, variable: str) -> tuple[list[str], list[str]]:
        """Return what reads the parts of partial(f, 1), such as one.args[0], and the terms."""
        is_partial = kind_of(node.value).name == "partial"
        held = [(f".{name}", getattr(node.value, name)) for name in _OF_PARTIAL[: 3 * is_partial]]
        terms = [self._size(variable + step, len(items)) for step, items in held]
        return [f"{variable}{step}" for step, _ in node.parts], terms

    def _items_of(self, node: PartNode, variable: str) -> tuple[list[str], list[str]]:
        """Return what reads the parts of a container, such as one[0], and the terms."""
        table, names, count = kind_of(node.value), self._names, len(node.keys) + len(node.parts)
        content, terms = table.content(node.value), list[str]()
        if table.name not in SIZED or len(content) > 1:  # array("d", [1]); deque([1], 9)
            read = names.of("content_of", table.content)
            terms.append(f"{read}({variable}) == {names.of('content', content)}")
        items = variable
        if not _is_tuple(node) and type(node.value) is not list:  # {"w": w}: keys and values
            variable = names.local()
            items = f"{variable} := {names.of('items', table.values)}({items})"
        codes = [f"{variable}[{place}]" for place in range(count)]
        keys = [self._same(key, code) for key, code in zip(node.keys, codes, strict=False)]
        return codes[len(keys) :], [*terms, self._size(items, count), *_all(keys)]

    def function(self, node: PartNode, path: Path, code: str) -> Checked:
        """Check a function, and of what it holds whatever the code that runs does not read."""
        value, variable, names = node.value, self._names.local(), self._names
        facts, parts = facts_of(value.__code__), node.parts
        codes = [f"{variable}{_code_to(value, step)}" for step, _ in parts]
        checked = self._parts(node, path, codes)
        closure = checked[len(_DEFAULTS) :]
        if registry_of(value):  # @singledispatch
            terms = _all(closure)
        elif facts.installed:  # optax.cosine_decay_schedule(0.1, 9)
            # User functions and callable objects in it run, so their reads are observed there.
            held = [item for _, item in parts[len(_DEFAULTS) :]]
            is_read = [not callable(item) or _passes_on(item) for item in held]
            terms = _all(_changing(itertools.compress(closure, is_read)))
        else:
            # Calls pass each parameter without a default. IPython puts new code into old functions.
            own = (*_DEFAULTS, "__code__") if "IPython" in sys.modules else _DEFAULTS
            kept = {name: getattr(value, name) for name in own}
            terms = [
                f"{variable}.{name} is {names.of('value', item)}"
                for name, item in kept.items()
                if item is not None
            ]
        grade = max(_lowest(checked), Grade.FIXED)
        return self._with_terms(value, code, variable, terms, grade)

    def wrapper(self, node: PartNode, path: Path, code: str) -> Checked:
        """Check the wrapper that a package makes of a function, as `jax.jit` does."""
        value, variable, step = node.value, self._names.local(), ".__wrapped__"
        wrapped = self.of((*path, step), f"{variable}{step}")
        # `act.defjvp(rule)` gives a function another rule.
        options = () if never_changes(type(value)) else node.parts[1:]
        rules = [(step, rule) for step, rule in options if is_a(rule, types.FunctionType)]
        checked = [self._same(rule, f"{variable}{step}") for step, rule in rules]
        terms = _all([*_changing([wrapped]), *checked])
        return self._with_terms(value, code, variable, terms, Grade.FIXED)

    def namespace(self, node: PartNode, path: Path, code: str) -> Checked:
        """Check a user's class or module, and the members that the code names."""
        value, words, variable = node.value, self._fold.words, self._names.local()
        codes = [f"{variable}.__dict__[{str(step)[1:]!r}]" for step, _ in node.parts]
        terms = _all(self._parts(node, path, codes))
        if is_a(value, types.ModuleType) and not words.isdisjoint({"getattr", "hasattr"}):
            # A setting that is not there yet: getattr(settings, "debug", False).
            terms.append(self._size(f"{variable}.__dict__", len(vars(value))))
        return self._with_terms(value, code, variable, terms, Grade.LIGHT)

    def object(self, node: PartNode, path: Path, code: str) -> Checked:
        """Check an object by its class and attributes."""
        value, names, variable = node.value, self._names, self._names.local()
        kind: Any = type(value)
        own, is_kept, inside = dict_of(value), keeps_in_dict(kind), names.local()
        held = [str(step)[1:] for step, _ in node.parts]
        codes = [f"{inside}[{name!r}]" if name in own else f"{variable}.{name}" for name in held]
        checked = self._parts(node, path, codes)
        grade = _lowest(checked) if never_changes(kind) else Grade.CHANGING
        is_light = grade is Grade.LIGHT and not names.is_weak
        if is_light or (grade is not Grade.CHANGING and WeakId(value).is_weak):
            return self._same(value, code, grade)  # a frozen dataclass
        is_hidden = in_class(kind, "__dict__") is not MISSING and not is_kept
        if is_hidden or not all(name in own or is_plain(value, name) for name in held):
            return self._same(value, code)  # with properties instead of attributes
        terms = [self._type(code, variable, value)]
        if is_kept:
            read = names.of("items", in_class(kind, "__dict__").__get__)
            terms.append(self._size(f"{inside} := {read}({variable})", len(own)))
        return Checked([*terms, *_all(checked)], grade)


def _is_tuple(node: PartNode) -> bool:
    """Return whether the parts are those of a tuple, also of a named one: ``Point(1, 2)``."""
    kind = type(node.value)
    is_read_so = issubclass(kind, tuple) and kind.__getitem__ is tuple.__getitem__
    return is_read_so and tuple.__len__(node.value) == len(node.parts)


def _code_to(function: types.FunctionType, step: Step) -> str:
    """Return the expression that leads from a function to what it holds."""
    if not isinstance(step, Held) or not step.variable:
        return str(step)
    if registry_of(function):
        return f".{step.variable}"
    return f".__closure__[{function.__code__.co_freevars.index(step.variable)}].cell_contents"


def _lowest(parts: Sequence[Checked]) -> Grade:
    return min([part.grade for part in parts], default=Grade.LIGHT)


def _changing(parts: Iterable[Checked]) -> list[Checked]:
    return [part for part in parts if part.grade is Grade.CHANGING]


def _all(parts: Iterable[Checked]) -> list[str]:
    return [term for part in parts for term in part.terms]


def _passes_on(value: Any) -> bool:
    """Return whether a callable has no user code itself, but may call some."""
    return is_a(value, functools.partial) or (
        is_a(value, types.FunctionType) and facts_of(value.__code__).installed
    )


_DEFAULTS: Final = ("__defaults__", "__kwdefaults__")
_OF_PARTIAL: Final = ("args", "keywords", "__dict__")


def check_function(
    names: Names, terms: list[str], call: Callable[..., Any], otherwise: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that calls `call` while all terms are true, and `otherwise` if not.

    It reads globals and cells by name, as the user's function does: it has the globals of the
    module, and the user's cells in its closure. For ``lambda x: f(params, x)``, where
    ``params`` is a dict of two arrays, it is::

        def check(*args, **kwargs):
            __tracebackhide__ = True
            try:
                same = (
                    f is value_0
                    and type_1(at_0 := params) is kind_2
                    and len_4(at_1 := items_3(at_0)) == 4
                    and at_1[0] is value_5
                    and at_1[1] is value_6
                    and ref_7() is at_1[2] is not None
                    and ref_8() is at_1[3] is not None
                )
            except Exception_9:
                same = False
            return call_10(*args, **kwargs) if same else otherwise_11(*args, **kwargs)
    """
    if not terms:
        return call
    given = {"Exception": Exception, "call": call, "otherwise": otherwise}
    own = [names.of(name, value) for name, value in given.items()]
    return names.function(_code_of_check(", ".join(names.cells), tuple(terms), *own))


@functools.lru_cache(maxsize=256)
def _code_of_check(
    names: str, terms: tuple[str, ...], exception: str, call: str, otherwise: str
) -> types.CodeType:
    lines = [
        f"def make({names}):",
        "    def check(*args, **kwargs):",
        "        __tracebackhide__ = True",
        "        try:",
        "            same = (",
        *[f"                {'and ' * (place > 0)}{each}" for place, each in enumerate(terms)],
        "            )",
        f"        except {exception}:",
        "            same = False",
        f"        return {call}(*args, **kwargs) if same else {otherwise}(*args, **kwargs)",
        "    return check",
    ]
    source = "\n".join(lines) + "\n"
    digest = sha256_of(source.encode())  # a traceback shows its own terms
    filename = f"<leafwise check of captures {digest[:12]}>"
    add_source(filename, source)
    code: types.CodeType = compile(source, filename, "exec")
    for _ in range(2):  # the code of `make`, then that of `check` inside it
        code = next(inner for inner in code.co_consts if isinstance(inner, types.CodeType))
    return code
