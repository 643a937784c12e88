"""Bound methods of pytree classes, which are pytrees; and the result of `leafwise.jit`.

Python's own bound methods are leaves that JAX rejects. Those of a pytree class, `BoundMethod`, are
pytrees: the instance is the child, and the function is aux_data.
"""

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import jax

from leafwise._objects.classes import notify_registered


def bind_methods(cls: type, fields: frozenset[str], decorated: Callable[[type], bool]) -> None:
    """Replace the functions of a class with descriptors that bind them as pytrees."""
    for name, function in list(_functions(cls)):
        if name not in fields:
            setattr(cls, name, Method(function))
    seen = set(vars(cls))
    for base in cls.__mro__[1:-1]:
        if not decorated(base) and base.__module__ not in ("abc", "typing"):
            for name, _ in _functions(base):
                if name not in seen and name not in fields:
                    setattr(cls, name, InheritedMethod(cls, name))
        seen.update(vars(base))


def _functions(cls: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(cls).items():
        # Python looks up special methods on the type, so they are never bound methods.
        special = name.startswith("__") and name.endswith("__") and name != "__call__"
        is_function = type(value) is types.FunctionType or isinstance(value, JITTED)
        if is_function and not special and not getattr(value, "__isabstractmethod__", False):
            yield name, value


class Method:
    """The descriptor of a function in the ``__dict__`` of a pytree class."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        # Doctest reads these.
        self.__module__ = func.__module__
        self.__doc__ = func.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self.func if instance is None else BoundMethod(self.func, instance)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class InheritedMethod:
    """The descriptor, in a pytree class, of a function from a base that is not a pytree class."""

    cls: type
    name: str

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # What Python would find without this descriptor.
        member = getattr(super(self.cls, owner if instance is None else instance), self.name)
        if type(member) is types.MethodType and member.__self__ is instance:
            return BoundMethod(member.__func__, instance)
        return member


class BoundMethod(functools.partial[Any]):
    """What ``p.method`` returns for an instance of a pytree class.

    A `functools.partial`, since that is created and called without running Python code.
    """

    __slots__ = ()

    @property
    def __self__(self) -> Any:
        return self.args[0]

    @property
    def __func__(self) -> Callable[..., Any]:
        return self.func

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature without the instance, which `inspect` does not derive in Python 3.11."""
        return inspect.signature(functools.partial(self.func, *self.args))

    def __get__(self, instance: object, owner: object = None) -> "BoundMethod":
        """Return itself: as an attribute of another class it stays bound."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the function, bound if it takes the function's arguments."""
        member = getattr(self.func, name)
        if name == "__wrapped__":
            return BoundMethod(member, self.__self__)
        if isinstance(self.func, types.FunctionType):
            return member
        if name in _MAKE_STAGES:
            return functools.partial(_bound_stage, member, self, self.__self__)
        return functools.partial(member, self.__self__) if name in _TAKE_ARGUMENTS else member

    def __repr__(self) -> str:
        name = getattr(self.func, "__qualname__", repr(self.func))
        return f"<bound method {name} of {self.__self__!r}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundMethod):
            return NotImplemented
        return self.__self__ is other.__self__ and bool(self.func == other.func)

    def __hash__(self) -> int:
        """Return a hash of the function and the id of the object, which need not be hashable."""
        return hash((id(self.__self__), self.func))


# An instance finds the `__doc__` of its class, so that `__getattr__` is not called.
setattr(BoundMethod, "__doc__", property(lambda method: method.func.__doc__))  # noqa: B010

_TAKE_ARGUMENTS: Final = frozenset({"eval_shape", "explain", "signature", "stale_captures"})
"""Attributes of a jitted function that are called with its arguments."""

_MAKE_STAGES: Final = frozenset({"compile", "lower", "trace"})
"""Attributes that return a stage, which is later called with the function's arguments."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _BoundStage:
    """A stage of `jax.stages` (traced, lowered or compiled) whose first argument is bound."""

    _stage: Any
    _method: BoundMethod

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._stage, name)
        is_maker = name in _MAKE_STAGES
        return functools.partial(_bound_stage, member, self._method) if is_maker else member

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._stage(self._method.__self__, *args, **kwargs)


def _bound_stage(
    make: Callable[..., Any], method: BoundMethod, /, *args: Any, **kwargs: Any
) -> _BoundStage:
    return _BoundStage(make(*args, **kwargs), method)


_PATH: Final = jax.tree_util.GetAttrKey("__self__")

jax.tree_util.register_pytree_with_keys(
    BoundMethod,
    lambda method: (((_PATH, method.args[0]),), method.func),
    lambda func, children: BoundMethod(func, *children),
    lambda method: (method.args, method.func),
)

notify_registered(BoundMethod)


class JittedFunction:
    """What `leafwise.jit` returns: a wrapper, which can change, of what `jax.jit` returns.

    Python finds ``__call__`` in a slot of the instance, so that a call needs no Python frame.
    """

    __slots__ = ("__call__", "__dict__", "__weakref__")

    _leafwise_jax: Any

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return a bound method, for a function that is defined in a class."""
        return self if instance is None else types.MethodType(cast("Any", self), instance)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the object that `jax.jit` returned."""
        if name in ("_leafwise_jax", "__call__"):  # not set yet, as during a copy
            raise AttributeError(name)
        return getattr(self._leafwise_jax, name)

    def __repr__(self) -> str:
        return repr(self._leafwise_jax)


JITTED: Final[tuple[type, ...]] = (type(jax.jit(lambda: None)), JittedFunction)
