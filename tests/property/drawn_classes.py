"""Pytree classes themselves, drawn as source code and decorated."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

from hypothesis import strategies as st

from leafwise.testing.strategies import instances

_STATIC_SPELLINGS: Final = ("annotation", "static_field", "metadata")
_DYNAMIC_SPELLINGS: Final = ("annotation", "field", "dataclasses.field")


_HEADER: Final = """\
import dataclasses
from typing import Any, Generic, TypeVar
import jax
import leafwise as lw
T = TypeVar("T")
"""


@dataclasses.dataclass(frozen=True)
class DrawnField:
    """How a field of a drawn class is declared."""

    name: str
    static: bool
    annotation: str = "Any"  # as code, without `lw.Static`
    spelling: str = "annotation"  # or a call, or "metadata": what makes it static or dynamic
    default: str = ""  # or "value" or "factory"
    init: bool = True
    kw_only: bool = False
    depth: int = 0  # the number of the class that declares it, 0 for the one without bases

    @property
    def default_value(self) -> Any:
        """The default, or what a factory makes; the same for every field of this name."""
        return _literal(self)

    @property
    def code(self) -> str:
        """The line that declares the field."""
        marked = self.static and self.spelling == "annotation"
        annotation = f"lw.Static[{self.annotation}]" if marked else self.annotation
        options = list(self._options())
        call = {"static_field": "lw.static_field", "field": "lw.field"}.get(
            self.spelling, "dataclasses.field"
        )
        if self.spelling == "annotation" and set(options) <= {f"default={self.default_value!r}"}:
            value = f" = {self.default_value!r}" if self.default else ""
            return f"{self.name}: {annotation}{value}"
        if self.spelling == "metadata":
            options.append("metadata={'static': True}")
        return f"{self.name}: {annotation} = {call}({', '.join(options)})"

    def _options(self) -> Iterator[str]:
        if self.default == "value":
            yield f"default={self.default_value!r}"
        elif self.default == "factory":
            yield f"default_factory=lambda: {self.default_value!r}"
        if not self.init:
            yield "init=False"
        if self.kw_only:
            yield "kw_only=True"


def _literal(field: DrawnField) -> Any:
    """Return a default; that of an overriding class is another one."""
    if field.annotation == "int":
        return 7 + field.depth
    if field.annotation == "str" or (field.static and field.annotation == "Any"):
        return f"default {field.name}" + "'" * field.depth
    return 0.5 + field.depth


class DrawnClass:
    """A pytree class that `pytree_classes` has drawn; `fields` has inherited ones first."""

    HEADER: ClassVar[str] = _HEADER

    def __init__(self, cls: Any, fields: tuple[DrawnField, ...], source: str) -> None:
        self.cls = cls
        self.fields = fields
        self.source = source

    @property
    def static(self) -> tuple[str, ...]:
        """The names of the static fields, in order."""
        return tuple(field.name for field in self.fields if field.static)

    @property
    def dynamic(self) -> tuple[str, ...]:
        """The names of the dynamic fields, in order."""
        return tuple(field.name for field in self.fields if not field.static)

    def values(self, number: int = 1) -> dict[str, Any]:
        """Return a value for each field by name, all different; another set by number.

        A field that the constructor does not take has its default.
        """
        found: dict[str, Any] = {}
        for index, field in enumerate(self.fields):
            if not field.init:
                found[field.name] = field.default_value
            elif field.annotation == "int":
                found[field.name] = number + 10 * index
            elif field.static:
                found[field.name] = f"{field.name} {number}"
            else:
                found[field.name] = float(number + index)
        return found

    def construct(self, values: dict[str, Any]) -> Any:
        """Return an instance with these values by name; others keep their defaults.

        Fields that the constructor does not take are passed over.
        """
        taken = {field.name for field in self.fields if field.init}
        return self.cls(**{name: value for name, value in values.items() if name in taken})

    def instances(self) -> st.SearchStrategy[Any]:
        """Return a strategy for instances, from the annotations."""
        return instances(self.cls)

    def __repr__(self) -> str:
        """Return the source, so that a counterexample can be run."""
        return f"<{self.cls.__name__} of\n{self.source}>"


def pytree_classes(*, max_fields: int = 4, max_depth: int = 3) -> st.SearchStrategy[DrawnClass]:
    """Return a strategy for pytree classes, decorated with `leafwise.pytree`.

    A class has up to `max_fields` fields of its own and derives from up to ``max_depth - 1``
    others; a subclass may override inherited fields. Fields are static by annotation, by
    `leafwise.static_field` or by metadata, or dynamic; they have a default, a factory or
    neither, may be ``kw_only`` or ``init=False``, and are annotated as ``int``, ``str``,
    ``float``, `jax.Array`, ``Any`` or a type variable. Classes may have ``slots``,
    ``kw_only``, ``order`` and ``many_statics``, and be generic.

    JAX keeps every class that was ever registered. So equal code is decorated once, as long
    as it is among the last 1000: thousands of examples make far fewer classes, all named
    ``Drawn``, ``Base`` and ``Root``.
    """
    if not 0 <= max_fields <= len(_NAMES):
        raise ValueError(f"pytree_classes(max_fields={max_fields!r}): from 0 to {len(_NAMES)}")
    if not 1 <= max_depth <= len(_CLASS_NAMES):
        raise ValueError(f"pytree_classes(max_depth={max_depth!r}): from 1 to {len(_CLASS_NAMES)}")
    return _classes(max_fields, max_depth)


_NAMES: Final = "abcdefghij"
_CLASS_NAMES: Final = ("Drawn", "Base", "Root", "Origin", "Source")
_OPTIONS: Final[tuple[str, ...]] = ("slots=True", "kw_only=True", "many_statics=True", "order=True")


_SELDOM: Final = st.sampled_from([False] * 4 + [True])


@st.composite
def _classes(draw: st.DrawFn, max_fields: int, max_depth: int) -> DrawnClass:
    generic = draw(st.booleans())
    bodies: list[tuple[Sequence[str], list[DrawnField]]] = []
    known: dict[str, DrawnField] = {}
    while len(bodies) < max_depth:
        fields = draw(_bodies(known, max_fields, len(bodies), generic=generic))
        options = draw(st.lists(st.sampled_from(_OPTIONS), max_size=2, unique=True))
        fields = _in_order(known, fields, positional="kw_only=True" not in options)
        known.update({field.name: field for field in fields})
        bodies.append((options, fields))
        if not draw(st.booleans()):
            break
    arguments = draw(st.sampled_from(["[T]", "[float]"])) if generic else ""
    parts: list[str] = []
    for level, (said, declared) in enumerate(bodies):
        name, base = _CLASS_NAMES[len(bodies) - 1 - level], "Generic[T]" if generic else ""
        if level:
            base = _CLASS_NAMES[len(bodies) - level] + (arguments if level == 1 else "")
        parts.append(_class_code(name, base, said, declared))
    source = "\n\n".join(parts)
    return DrawnClass(_made(source), tuple(known.values()), source)


@st.composite
def _bodies(
    draw: st.DrawFn, known: dict[str, DrawnField], most: int, level: int, *, generic: bool
) -> list[DrawnField]:
    """Draw the fields that one class body declares, in their order."""
    fresh = [f"{name}{level or ''}" for name in _NAMES[: draw(st.integers(0, most))]]
    overridden = [name for name in known if draw(_SELDOM)]
    fields = [draw(_fields(name, level, generic=generic, like=None)) for name in fresh]
    fields += [draw(_fields(name, level, generic=generic, like=known[name])) for name in overridden]
    return draw(st.permutations(fields)) if level % 2 else fields


@st.composite
def _fields(
    draw: st.DrawFn, name: str, level: int, *, generic: bool, like: DrawnField | None
) -> DrawnField:
    # A field turns static, or dynamic, once in a line of classes.
    turned = like is not None and like.depth != _depth_of(name)
    static = like.static if like is not None and turned else draw(st.booleans())
    kinds = ["Any", "int", "str"] if static else ["Any", "float", "jax.Array"]
    if generic and not static and like is None:
        kinds.append("T")
    annotation = draw(st.sampled_from(kinds))
    # What a dynamic field overrides was perhaps static: it must say which it is.
    dynamic = _DYNAMIC_SPELLINGS if like is None else ("field",)
    spelling = draw(st.sampled_from(_STATIC_SPELLINGS if static else dynamic))
    default = draw(st.sampled_from(["", "value", "factory"]))
    init = not draw(_SELDOM)
    if not init and not default:
        default = "value"
    kw_only = draw(st.booleans()) and init
    return DrawnField(name, static, annotation, spelling, default, init, kw_only, level)


def _depth_of(name: str) -> int:
    """Return the number of the class that declared a field first."""
    return int(name[1:] or 0)


def _in_order(
    known: dict[str, DrawnField], fields: list[DrawnField], *, positional: bool
) -> list[DrawnField]:
    """Return the fields so that no positional one without default follows one with it."""
    merged = known | {field.name: field for field in fields}
    own = {field.name for field in fields}
    seen = False
    for name, field in merged.items():
        by_position = field.init and not field.kw_only and (positional or name not in own)
        if by_position and seen and not field.default:
            # An inherited one stands where it stood: only its default was overridden before.
            merged[name] = dataclasses.replace(field, kw_only=True)
            if name not in own:
                own.add(name)
        seen = seen or (by_position and bool(field.default))
    return [merged[name] for name in merged if name in own]


def _class_code(name: str, base: str, options: Sequence[str], fields: list[DrawnField]) -> str:
    decorator = f"@lw.pytree({', '.join(options)})" if options else "@lw.pytree"
    head = f"class {name}({base}):" if base else f"class {name}:"
    body = [f"    {field.code}" for field in fields] or ["    ..."]
    return "\n".join([decorator, head, *body])


@functools.lru_cache(maxsize=1000)
def _made(source: str) -> Any:
    """Return the class ``Drawn`` of a source."""
    namespace: dict[str, Any] = {"__name__": "drawn_classes"}
    exec(_HEADER, namespace)  # noqa: S102  # code of this module
    exec(source, namespace)  # noqa: S102  # drawn above
    return namespace["Drawn"]
