"""What a function is made of, as far as it may hold arrays: the parts for `_rebuild`."""

import enum
import functools
import inspect
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

import jax
import numpy as np

from leafwise._captures.hoist_kinds import (
    CLOSED,
    CLOSED_TYPES,
    CUSTOM_RULES,
    IMPLIED,
    PLAIN,
    SEE_GLOBALS,
    Path,
    is_array,
    is_number,
    is_open,
)
from leafwise._captures.places import CapturedPlace
from leafwise._captures.rebuild import (
    Fixed,
    FunctionPart,
    JittedPart,
    ObjectPart,
    Part,
    Remade,
    Slot,
    Tree,
    Wrapped,
    slots_below,
)
from leafwise._captures.waiting_methods import names_in
from leafwise._jax.compat import jit_options
from leafwise._objects.attributes import attributes, in_class, is_tree, own_attributes
from leafwise._objects.bytecode import chains_of
from leafwise._objects.classes import is_a, module_of
from leafwise._objects.code import (
    Chain,
    contents,
    facts_of,
    function_in,
    is_installed_module,
    own_bases,
)
from leafwise._objects.methods import Method as ClassMethod
from leafwise._objects.parts import kind_of
from leafwise._objects.reads import Item
from leafwise._objects.stand_ins import MISSING
from leafwise._trees.nodes import open_node

Hoistable = Part | Slot | None

NOT_FOLLOWED: Final = "it is read in a way that could not be followed"


class HoistWalk:
    """A walk from a function to all arrays that it captures.

    Attributes:
        captures: What was found, by name: a slot, or a tree with slots and None.
        slots: All slots.
        of_objects: Those of attributes: not all need be read by the code that has the object.
        sees_all: Whether code can read globals without naming them.
        scalars: Whether floats and complex numbers count, too.
    """

    def __init__(self, *, scalars: bool) -> None:
        """Start with nothing.

        Args:
            scalars: Whether floats and complex numbers count, too.
        """
        self.captures: dict[str, Any] = {}
        self.scalars = scalars
        self._known: dict[int, tuple[Any, Hoistable]] = {}
        self._arrays: dict[int, Slot] = {}
        self._taken: set[int] = set()
        self.slots: list[Slot] = []
        self._classes: dict[type, Fixed] = {}
        self._modules: dict[int, ObjectPart] = {}
        self.of_objects: set[Hoistable] = set()
        self._named: set[str] = set()
        self.sees_all = False
        self._looks: tuple[tuple[Any, Callable[[Any, Path], object]], ...] = (
            (types.FunctionType, self._function),
            ((types.MethodType, functools.partial), self._remade),
            (ClassMethod, self._method_of_class),
            (enum.Enum, self._enum_member),
            (types.ModuleType, self._module),
            (type(functools.lru_cache(repr)), self._cached),
            (CUSTOM_RULES, self._object),
        )

    def root(self, fun: Any, written: Iterable[Any]) -> Part:
        """Return the parts of the function that is hoisted.

        Args:
            fun: The function.
            written: What it collects in: that is no input of it, and must not be copied.
        """
        self._known.update({id(value): (value, None) for value in written})
        path = Path("self", getattr(fun, "__name__", type(fun).__name__))
        found = self.visit(fun, path)
        is_data = isinstance(found, Tree | ObjectPart) and not isinstance(fun, CUSTOM_RULES)
        is_data |= isinstance(found, Fixed) and not found.reason
        called = inspect.getattr_static(type(fun), "__call__", None)
        if (found is None or is_data) and isinstance(called, types.FunctionType):
            found = self._remade(types.MethodType(called, fun), path)
        self._enter_classes()
        return found if isinstance(found, Part) else Fixed(fun, "")

    def visit(self, value: Any, path: Path, *, own: bool = True) -> Hoistable:
        """Return what a value is made of; None if it holds nothing of interest.

        Args:
            value: The value.
            path: Where it is.
            own: Whether the user's own code holds it, so that numbers are of interest.
        """
        try:
            if self._is_capture(value, own=own):
                slot, fresh = self._slot(value, path)
                if fresh:
                    self.name(path, slot)
                return slot
            if id(value) not in self._known:
                self._known[id(value)] = value, None
                self._look(value, path, own=own)
                self._members(value)
        except Exception as error:  # noqa: BLE001  # code of the user's, which may raise anything
            self._add(value, Fixed(value, f"reading it raises {type(error).__name__}: {error}"))
        return self._known[id(value)][1]

    def _is_capture(self, value: Any, *, own: bool) -> bool:
        return is_array(value) or (own and self.scalars and is_number(value))

    def _slot(self, value: Any, path: Path) -> tuple[Slot, bool]:
        """Return the slot of an array, and whether it is a new one; of a number always."""
        slot = self._arrays.get(id(value)) if is_array(value) else None
        if slot is not None:
            return slot, False
        return self._take(Slot(str(path), value)), True

    def _take(self, slot: Slot) -> Slot:
        self.slots.append(slot)
        self._taken.add(id(slot.value))
        if is_array(slot.value):
            self._arrays[id(slot.value)] = slot
        return slot

    def name(self, path: Path, found: Any) -> None:
        """Give a capture a name of its own."""
        name, count = str(path), 1
        if name in self.captures:
            name = path.with_function()
        start = name
        while name in self.captures:
            count += 1
            name = f"{start} ({count})"
        self.captures[name] = found

    def _add(self, value: Any, part: Part) -> Part:
        self._known[id(value)] = value, part
        return part

    def _put(self, part: Part, key: Any, value: Any, path: Path, *, own: bool = True) -> None:
        count = len(self.slots)
        found = self.visit(value, path, own=own)
        if found is not None:
            part.inside[key] = found
        if not isinstance(part, ObjectPart):
            self.of_objects -= {found}
        elif is_open(part.value):
            self.of_objects.update(self.slots[count:])

    def _look(self, value: Any, path: Path, *, own: bool) -> None:
        if is_a(value, type):  # only its members matter, whatever they look like
            return
        for kinds, look in self._looks:
            if is_a(value, kinds):
                look(value, path)
                return
        if _is_jitted(value):
            self._jitted(value, path)
            return
        if type(value) in PLAIN or is_a(value, CLOSED_TYPES):
            return
        if is_a(value, np.ndarray) and value.dtype == object:
            self._container(value, path)
            return
        if not jax.tree_util.all_leaves([value]):
            self._tree(value, path, own=own)
        elif is_a(value, Mapping | list | tuple | AbstractSet | deque):
            self._container(value, path)
        elif callable(value) or module_of(type(value)).partition(".")[0] not in CLOSED:
            self._object(value, path, own=own)

    def _function(self, fun: types.FunctionType, path: Path) -> None:
        facts = facts_of(fun.__code__)
        writes = [name[len("global ") :] for name in facts.rebinds if name.startswith("global ")]
        part = self._add(fun, FunctionPart(fun, writes))
        own = not facts.installed
        path = path.inside_of(fun.__name__)
        self._named.update(names_in(fun.__code__))
        for place, name in enumerate(fun.__code__.co_freevars):
            value = contents((fun.__closure__ or ())[place])
            if value is not MISSING and name != "__class__":
                held = self._held(part, ("cell", place), name in facts.rebinds, name)
                cells = chains_of(fun.__code__).of_cells if own else ()
                for chain in [each for each in cells if each[0] == name] or [(name,)]:
                    self._follow(*held, value, chain, path, own=own)
        if own:
            self._globals(fun, part, path)
        positional = fun.__code__.co_varnames[: fun.__code__.co_argcount]
        for place, value in enumerate(defaults := fun.__defaults__ or ()):
            name = positional[place - len(defaults)]
            self._put(part, ("default", place), value, path.of(name), own=own)
        for name, value in (fun.__kwdefaults__ or {}).items():
            self._put(part, ("named", name), value, path.of(name), own=own)
        for name, value in vars(fun).items():
            if name != "__wrapped__":  # which is called by way of a cell, if it is called
                self._put(part, ("attribute", name), value, path.of(f"{fun.__name__}.{name}"))

    def _held(self, part: Part, key: Any, rebound: bool, name: str) -> tuple[Part, Any]:  # noqa: FBT001
        """Return where to put what a variable holds, which the code may assign."""
        if not rebound:
            return part, key
        fixed = Fixed(name, f"the function assigns {name}, which a copy of it could not")
        part.inside["assigned", name] = fixed
        return fixed, key

    def _globals(self, fun: types.FunctionType, part: Part, path: Path) -> None:
        facts = facts_of(fun.__code__)
        for chain in chains_of(fun.__code__).of_globals:
            name = chain[0]
            if name in fun.__globals__:  # no builtin
                held = self._held(part, ("global", name), f"global {name}" in facts.rebinds, name)
                self._follow(*held, fun.__globals__[name], chain, path)
        if any(chain[0] in SEE_GLOBALS for chain in chains_of(fun.__code__).of_globals):
            self.sees_all = True
            for name, value in fun.__globals__.items():
                if is_array(value):
                    self._put(part, ("global", name), value, path.of(name))

    def _follow(
        self, part: Part, key: Any, value: Any, chain: Chain, path: Path, *, own: bool = True
    ) -> None:
        """Put what a variable holds, or what the code takes of it: of a module, or a class."""
        for place, name in enumerate(chain[1:], 1):
            if not is_a(value, types.ModuleType) or is_installed_module(value.__name__):
                break
            module = self._modules.setdefault(id(value), ObjectPart(value))
            part.inside[key] = module
            part, key, value = module, name, vars(value).get(name)
            if is_a(value, type) and place + 1 < len(chain):
                break
        else:
            place = len(chain)
        if is_a(value, enum.EnumMeta) and place < len(chain):  # only one member is read
            named = part.inside[key] = Fixed(value, "")
            self._instance_of(value, named)
        else:
            self._put(part, key, value, path.of(".".join(chain[:place])), own=own)
        if is_a(value, type) and place < len(chain):
            member = function_in(inspect.getattr_static(value, chain[place], None))
            if not is_installed_module(value.__module__):
                self._member(value, chain[place], member)

    def _remade(self, value: Any, path: Path) -> Part:
        part = self._add(value, Remade(value))
        for place, (step, item) in enumerate(kind_of(value).parts(value)):
            name = {".func": str(path), ".__func__": str(path), ".__self__": "self"}.get(step)
            if name is None:  # an argument: one by keyword has the name of its parameter
                name = step.removeprefix(".keywords['").removesuffix("']").removeprefix(".")
            self._put(part, place, item, path.of(name))
        return part

    def _enum_member(self, value: enum.Enum, path: Path) -> None:
        where = f"{type(value).__name__}.{value.name}"
        fixed = Fixed(value, f"{where} holds it, and a class stays as it is")
        self._put(fixed, "value", value.value, path.of(f"{where}.value"), own=False)
        if fixed.inside:
            self._add(value, fixed)

    def _method_of_class(self, value: ClassMethod, path: Path) -> None:
        """Look at a function as it stands in a pytree class."""
        self._put(self._add(value, Wrapped(value, ClassMethod)), "fun", value.func, path)

    def _module(self, value: types.ModuleType, path: Path) -> None:
        """Look at a module of which anything may be taken."""
        if not is_installed_module(value.__name__):
            part = self._add(value, self._modules.setdefault(id(value), ObjectPart(value)))
            for name, item in vars(value).items():
                if not name.startswith("__"):
                    self._put(part, name, item, path.of(f"{path}.{name}"))

    def _cached(self, value: Any, path: Path) -> None:
        part = self._add(value, Wrapped(value, functools.lru_cache(**value.cache_parameters())))
        self._put(part, "fun", value.__wrapped__, path)

    def _jitted(self, value: Any, path: Path) -> None:
        inner: Any = getattr(value, "__wrapped__", None)
        while type(inner).__module__.startswith("leafwise."):  # what lw.jit hands to JAX
            inner = inner.__wrapped__
        if not callable(inner):
            return
        options = jit_options(value)
        if options is None:  # JAX does not tell: then what is around it is to be jitted
            part: Part = Wrapped(value, lambda fun: fun)
        elif isinstance(options, str):
            part = Fixed(value, f"it is jitted with {options}, which would not fit")
        else:
            part = JittedPart(value, options)
        self._add(value, part)
        self._put(part, "fun", inner, path)

    def _tree(self, value: Any, path: Path, *, own: bool) -> None:
        try:
            found: tuple[Any, Any] = jax.tree_util.tree_flatten_with_path(value)
        except Exception:  # noqa: BLE001  # keys that do not sort, or a flatten of the user's own
            is_container = is_a(value, Mapping | list | tuple | AbstractSet | deque)
            (self._container if is_container else self._object)(value, path)
            return
        pairs, treedef = found
        keys, leaves = [key for key, _ in pairs], [leaf for _, leaf in pairs]
        part = self._add(value, Tree(value, leaves, treedef))
        fresh: list[Slot | None] = []
        for place, (key, leaf) in enumerate(zip(keys, leaves, strict=True)):
            mine: Slot | None = None
            if self._is_capture(leaf, own=own):
                slot, is_new = self._slot(leaf, path.of(f"{path}{jax.tree_util.keystr(key)}"))
                part.inside[place] = slot
                self.of_objects -= {slot}
                mine = slot if is_new else None
            elif type(leaf) not in PLAIN:
                where = path.of(f"{path}{jax.tree_util.keystr(key)}")
                self._put(part, place, leaf, where, own=own)
            fresh.append(mine)
        if any(slot is not None for slot in fresh):
            self.name(path, treedef.unflatten(fresh))
        self._statics(value, part, path)

    def _statics(self, tree: Any, part: Part, path: Path) -> None:
        """Look into the statics of a tree, which no array can be a part of."""
        todo = [(str(path), tree)]
        while todo:
            where, value = todo.pop()
            opened = None if type(value) in PLAIN else open_node(value)
            if opened is None:
                continue
            node, children = opened
            for name, static in zip(node.names, node.values, strict=True):
                if type(static) not in PLAIN:
                    fixed = Fixed(static, f"it is inside the static {where}{name}")
                    part.inside["static", where + name] = fixed
                    self._put(fixed, "value", static, path.of(where + name))
            self._instance_of(node.cls, part)
            steps = zip(node.steps, children, strict=True)
            todo += [(where + step, child) for step, child in steps]

    def _container(self, value: Any, path: Path) -> None:
        kind = type(value).__name__
        part = self._add(value, Fixed(value, f"it is inside a {kind}, which JAX sees no parts of"))
        pairs = value.items() if is_a(value, Mapping) else enumerate(value)
        for key, item in pairs:
            self._put(part, key, item, path.of(f"{path}[{key!r}]"))

    def _object(self, value: Any, path: Path, *, own: bool = True) -> None:
        if held := attributes(value):
            part = self._add(value, ObjectPart(value))
            for name, item in held:
                if name != "__wrapped__":
                    self._put(part, name, item, path.of(f"{path}.{name}"), own=own)

    def _members(self, value: Any) -> None:
        """Note that what the class of a value has may be read, and what a class itself has."""
        cls = value if is_a(value, type) else type(value)
        if not own_bases(cls):
            return
        found = self._known[id(value)][1]
        part = found if isinstance(found, Part) else self._add(value, Fixed(value, ""))
        self._instance_of(cls, part)
        if is_a(value, enum.EnumMeta):  # no code need name its members
            for name, member in cast("Any", value).__members__.items():
                self._put(part, name, member, Path(f"{cls.__name__}.{name}", cls.__name__))

    def _instance_of(self, cls: type, part: Part) -> None:
        for base in own_bases(cls):
            part.inside["class", base] = self._class(base)

    def _class(self, cls: type) -> Fixed:
        if cls not in self._classes:
            self._classes[cls] = Fixed(cls, "")
        return self._classes[cls]

    def _member(self, cls: type, name: str, value: Any) -> None:
        """Look at what a class has under a name: no other class can be put in its place."""
        where = f"{cls.__name__}.{name}"
        fixed = Fixed(value, on_class(cls, name, value))
        self._put(fixed, "value", value, Path(where, cls.__name__))
        if hasattr(type(value), "__get__"):  # which reads its own attributes unseen
            self.of_objects.difference_update(slots_below(fixed))
        self._class(cls).inside[name] = fixed

    def _enter_classes(self) -> None:
        """Look at the methods and attributes of classes that the code names."""
        done: set[tuple[type, str]] = set()
        while True:
            todo = [
                (cls, name, member)
                for cls in list(self._classes)
                for name, member in vars(cls).items()
                if (cls, name) not in done and (name in self._named or name in IMPLIED)
            ]
            if not todo:
                return
            for cls, name, member in todo:
                done.add((cls, name))
                value = function_in(member)
                if not is_a(value, types.MemberDescriptorType | types.GetSetDescriptorType):
                    self._member(cls, name, value)

    def has(self, value: Any) -> bool:
        """Return whether the walk led to a value, and it is or holds something of interest."""
        return id(value) in self._taken or self._part_of(value) is not None

    def _part_of(self, value: Any) -> Hoistable:
        return self._known.get(id(value), (None, None))[1]

    def adopt(self, slot: Slot) -> Slot:
        """Return the slot of the same array here; one that is new gets a name."""
        known = self._arrays.get(id(slot.value))
        if known is None:
            known = self._take(slot)
            self.name(Path(slot.name, "elsewhere"), slot)
        return known

    def obstacle(self, place: CapturedPlace) -> str:
        """Return why what is found at a place stays there; nothing if the way to it was walked."""
        for holder, step, value in place.way():
            if isinstance(holder, type):
                return on_class(holder, step, value)
            if isinstance(step, Item):  # of a container, whose items have no other holder
                continue
            raw = in_class(type(holder), step)
            is_own = hasattr(type(raw), "__set__") or step in dict(own_attributes(holder))
            if raw is not MISSING and not is_own:
                owner = next(each for each in type(holder).__mro__ if step in vars(each))
                return on_class(owner, step, value)
            if reason := self._obstacle_in(holder, step, value):
                return reason
        return ""

    def _obstacle_in(self, holder: Any, name: str, value: Any) -> str:
        part = self._part_of(holder)
        if isinstance(holder, types.ModuleType):
            part = self._modules.get(id(holder))
        if isinstance(part, ObjectPart):
            return "" if name in part.inside else NOT_FOLLOWED
        if not isinstance(part, Tree) and (part is not None or not is_tree(holder)):
            return NOT_FOLLOWED if part is None else ""
        # A node inside a tree has no part of its own.
        leaves = part.leaves if isinstance(part, Tree) else jax.tree.leaves(holder)
        if set(map(id, jax.tree.leaves(value))) <= set(map(id, leaves)):
            return ""
        return f"it is not a leaf of the {type(holder).__name__}, whose aux_data stays as it is"


def on_class(cls: type, name: Any, value: Any) -> str:
    """Return why what a class has under a name stays there."""
    if is_array(value):
        where = f"{cls.__name__} ({cls.__name__}.{name})"
        return f"it is an attribute of the class {where}, which stays as it is"
    verb = "reads" if callable(value) or hasattr(type(value), "__get__") else "holds"
    return f"{cls.__name__}.{name} {verb} it, and a class stays as it is"


def _is_jitted(value: Any) -> bool:
    try:
        return callable(value) and isinstance(value, jax.stages.Wrapped)
    except Exception:  # noqa: BLE001  # Python 3.11 asks a `__getattr__` of the user's own
        return False
