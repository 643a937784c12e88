"""How treescope shows an instance, with its dynamic and static fields."""

import dataclasses
import importlib
from typing import Any, Final

from leafwise._classes.registry import spec_of

# treescope has no types.
rendering_parts: Final[Any] = importlib.import_module("treescope.rendering_parts")

# Legible on white and on black, as treescope has both.
DYNAMIC: Final = "#2f8f4e"
STATIC: Final = "#a06bd6"


def render(self: Any, path: str | None, subtree_renderer: Any) -> Any:
    """Return the rendering of an instance, for its ``__treescope_repr__``.

    The names of static fields are violet, in italics and underlined, those of dynamic ones
    green. In roundtrip mode the text is code, as for any dataclass.

    Args:
        self: An instance of a pytree class.
        path: Its path from the root, as treescope passes it.
        subtree_renderer: The function that renders the values of fields.

    Returns:
        A part that `treescope` lays out as text or HTML.

    Examples:
        >>> @pytree
        ... class Named:
        ...     x: float
        ...
        ...     def __repr__(self):
        ...         return "named"
        ...
        ...     def __treescope_repr__(self, path, subtree_renderer):
        ...         return render(self, path, subtree_renderer)
    """
    static = frozenset(spec_of(type(self)).static_names)

    def name_of(name: str) -> Any:
        text = rendering_parts.text(name)
        if name not in static:
            return rendering_parts.custom_text_color(text, DYNAMIC)
        styled = rendering_parts.custom_style(
            text, "font-style: italic; text-decoration: underline"
        )
        return rendering_parts.custom_text_color(styled, STATIC)

    children = rendering_parts.build_field_children(
        self,
        path,
        subtree_renderer,
        fields_or_attribute_names=dataclasses.fields(self),
        attr_style_fn=name_of,
    )
    return rendering_parts.build_foldable_tree_node_from_children(
        prefix=rendering_parts.render_dataclass_constructor(self),
        children=children,
        suffix=")",
        path=path,
        child_type_single_and_plural=("field", "fields"),
    )
