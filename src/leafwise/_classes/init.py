"""The constructor of a pytree class: a generated one, or its own with a validated end."""

import functools
import inspect
import types
from collections.abc import Mapping
from typing import Any

from leafwise._classes import construct
from leafwise._classes.codegen import make_init
from leafwise._classes.registry import spec_of
from leafwise._classes.spec import ClassSpec, is_decorated, parameter_types
from leafwise.errors import DefinitionError, LeafwiseError


def attach_init(
    cls: Any, spec: ClassSpec, scopes: list[Mapping[str, Any]], written: Any, *, init: bool
) -> None:
    """Give the class a constructor that ends with validated statics.

    Args:
        cls: The class.
        spec: Its spec.
        scopes: The local names that its body could see.
        written: Its own constructor, or None.
        init: Whether to generate one if it has none.

    Raises:
        DefinitionError: `written` is what another decorator made of an inherited one.
    """
    if written is not None:
        _check_written(cls, written)
        cls.__init__ = _completing(cls, written)
    elif init:
        initvars = [
            definition
            for definition in cls.__dataclass_fields__.values()
            if definition._field_type.name == "_FIELD_INITVAR"  # noqa: SLF001  # no public way
        ]
        kinds = parameter_types(cls, scopes)
        cls.__init__ = make_init(spec, initvars, kinds, construct.check_decorated, _finish)
    else:
        cls.__init__ = _inherited(cls)


def _completing(cls: Any, written: Any) -> Any:
    # `__init__` gets other globals below, so it may read none of this module.
    check_decorated, finish, own_error = construct.check_decorated, _finish, LeafwiseError

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  # Python's own name
        try:
            if type(self) is not cls:
                check_decorated(type(self))
            written(self, *args, **kwargs)
            if type(self) is cls:
                finish(self, cls)
        except own_error as error:
            __tracebackhide__ = True
            raise error.without_own_frames()  # noqa: B904  # the same error

    # The globals of what it wraps, as jaxtyping evaluates string annotations in them.
    wrapper: Any = __init__
    names = getattr(inspect.unwrap(written), "__globals__", wrapper.__globals__)
    made = types.FunctionType(wrapper.__code__, names, closure=wrapper.__closure__)
    return functools.wraps(written)(made)


def _inherited(cls: Any) -> Any:
    @functools.wraps(cls.__init__)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  # Python's own name
        try:
            super(cls, self).__init__(*args, **kwargs)
            if type(self) is cls:
                _finish(self, cls)
        except LeafwiseError as error:
            __tracebackhide__ = True
            raise error.without_own_frames()  # noqa: B904  # the same error

    return __init__


def _finish(self: Any, cls: type) -> None:
    construct.finish(spec_of(cls), self)


def _check_written(cls: Any, written: Any) -> None:
    """Refuse a wrapper of an inherited constructor, which knows no fields of the class."""
    inherited = {
        base.__dict__.get("__init__"): base for base in cls.__mro__[1:] if is_decorated(base)
    }
    # One that a user writes with functools.wraps still has __init__ in its code object.
    if getattr(getattr(written, "__code__", None), "co_name", "__init__") == "__init__":
        return
    inner = written
    while (inner := getattr(inner, "__wrapped__", None)) is not None:
        if inner in inherited:
            name, base = cls.__name__, inherited[inner].__name__
            module = written.__globals__["__name__"].partition(".")[0]
            raise DefinitionError(
                f"{name}: a decorator below @lw.pytree (of {module}) took the constructor of "
                f"{base} for that of {name}, which has none yet\n"
                f"  fix: put @lw.pytree below it, next to `class {name}`"
            )
