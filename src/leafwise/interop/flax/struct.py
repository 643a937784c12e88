"""The API of `flax.struct` with pytree classes: only one import of a file changes.

``from leafwise.interop.flax import struct`` replaces ``from flax import struct``.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform, overload

from leafwise._classes import fields, instance
from leafwise._classes.annotations import caller_scopes, scopes_of
from leafwise._classes.fields import static_field
from leafwise._classes.pytree import PytreeOptions, check_frozen, decorate
from leafwise.interop.flax import make_serializable

__all__ = ["PyTreeNode", "dataclass", "field"]

C = TypeVar("C", bound=type)


def field(pytree_node: bool = True, **arguments: Any) -> Any:
    """Declare a field as `flax.struct.field` does.

    Args:
        pytree_node: Whether the field is dynamic, as with `leafwise.field`, or static, as with
            `leafwise.static_field`.
        **arguments: The arguments of that function.

    Returns:
        A `dataclasses.Field`, typed as the field's value.
    """
    declare: Any = fields.field if pytree_node else static_field
    return declare(**arguments)


@overload
def dataclass(cls: C, /) -> C: ...
@overload
def dataclass(**options: bool) -> Callable[[C], C]: ...
@dataclass_transform(
    eq_default=False, field_specifiers=(field, fields.field, static_field, dataclasses.field)
)
def dataclass(cls: C | None = None, /, **options: bool) -> C | Callable[[C], C]:
    """Make a class a pytree class, as ``leafwise.pytree(replace=True)`` does.

    It replaces `flax.struct.dataclass`: the class has ``.replace``, and works with
    `flax.serialization` as documented in `leafwise.interop.flax.register_serialization`.

    Args:
        cls: The class, when used without parentheses.
        **options: The options of `leafwise.pytree`.

    Returns:
        The class.

    Raises:
        DefinitionError: As `leafwise.pytree` raises it.

    Examples:
        >>> from leafwise.interop.flax import struct
        >>> @struct.dataclass
        ... class State:
        ...     x: jax.Array
        ...     size: int = struct.field(pytree_node=False, default=3)
        >>> State(jax.numpy.zeros(2)).replace(size=4)
        State(x=f32[2], size=4)
    """
    if cls is not None:
        return _make_pytree(cls, options, caller_scopes(2))
    return lambda decorated: _make_pytree(decorated, options, caller_scopes(2))


def _make_pytree(cls: C, options: dict[str, bool], scopes: list[Mapping[str, Any]]) -> C:
    check_frozen(frozen=options.pop("frozen", True))
    pytree: C = decorate(cls, PytreeOptions(**options, replace=True), scopes)
    make_serializable(pytree)
    return pytree


@dataclass_transform(
    eq_default=False, field_specifiers=(field, fields.field, static_field, dataclasses.field)
)
class PyTreeNode:
    """The base class of pytree classes without a decorator, like `flax.struct.PyTreeNode`.

    Keywords after the base class are the options of `leafwise.pytree`.

    Examples:
        >>> from leafwise.interop.flax import struct
        >>> class State(struct.PyTreeNode):
        ...     x: jax.Array
        >>> State(jax.numpy.zeros(2)).replace(x=1)
        State(x=1)
    """

    def __init_subclass__(cls, **options: bool) -> None:
        """Make a subclass a pytree class."""
        super().__init_subclass__()
        _make_pytree(cls, options, scopes_of(cls))

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self:
            """Return a copy with some fields changed; see `leafwise.replace`."""
            ...

    else:
        replace = instance.replace
