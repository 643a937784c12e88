"""Imports inside leafwise go down the layers, and its files stay small."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "leafwise"
FILES = sorted(SOURCE.rglob("*.py"))
LONGEST = 400

# A module imports only from lower layers. A name with a dot overrides that of its package;
# modules of one package without an entry of their own may import each other.
LAYERS = {
    "errors": 0,
    "_classes": 0,
    "_classmap": 0,
    "_events": 0,
    "_fields": 1,
    "_freeze": 1,
    "_introspect": 1,
    "_method": 1,
    "_slots": 1,
    "_text": 1,
    "_annotations": 2,
    "_describe": 2,
    "_paths": 2,
    "_findings": 2,
    "_reading": 3,
    "_snapshot": 3,
    "_statics": 4,
    "_spread": 4,
    "_owner": 6,
    "_interning": 6,
    "_static_key": 7,
    "_keyed": 8,
    "_spec": 8,
    "_codegen": 9,
    "_converting": 9,
    "_construct": 10,
    "_registry": 11,
    "_constructor": 12,
    "_instance": 12,
    "_register": 12,
    "_display": 13,
    "_pytree": 14,
    "_guards": 0,
    "_code": 1,
    "_content_names": 2,
    "_content_reading": 4,
    "_content": 5,
    # Trees of any library: paths, selections, edits, pictures.
    "_requests": 13,
    "_combine": 13,
    "_places": 13,
    "_parts": 14,
    "_conditions": 15,
    "_where": 16,
    "_replace": 15,
    "_update": 16,
    "_axes": 16,
    "testing._view": 14,  # by itself: it needs nothing of the kit
    "_show": 15,
    # Checkpoints.
    "_portable": 9,
    "_description": 10,
    "_mismatch": 11,
    "_checkpoint": 12,
    # What a function closes over.
    "_opcodes": 1,
    "_refs": 1,
    "_reads": 2,
    "_lookup": 3,
    "_captured_methods": 4,
    "_captured_places": 4,
    "_captured_walk": 5,
    "_bindings": 11,
    "_captured_values": 12,
    "_captured_sites": 12,
    "_captures": 13,
    "_hoist_kinds": 2,
    "_rebuild": 12,
    "_hoist_walk": 13,
    "_hoist": 17,
    "_jitted": 0,
    "_cures": 4,
    "_capture_checks": 5,
    "_seen": 3,
    "_held": 4,
    "_look": 5,
    "_fingerprint": 12,
    "_quick_check": 13,
    "_inner_traces": 13,
    "_stale_words": 13,
    "_staleness": 18,
    "_jit_function": 19,
    # The oracle.
    "_jaxcompat": 0,
    "_jaxcompat_frames": 1,
    "_jaxcompat_sides": 2,
    "_sites": 0,
    "report": 0,
    "_values": 9,
    "_nodes": 9,
    "_leaves": 10,
    "_reasons": 10,
    "_signature": 11,
    "_advice": 11,
    "_callee": 12,
    "_static_reasons": 12,
    "_leaf_reasons": 12,
    "_call_reasons": 13,
    "_value_reasons": 12,
    "_compare": 14,
    "_explain": 15,
    "_storm": 16,
    "_memory": 17,
    "_watching": 18,
    "_jit": 20,
    "_watch": 19,
    "_diff": 16,
    "_carry_leaves": 11,
    "_carry": 16,
    "_misfits": 17,
    "_script_captures": 20,
    "_script": 21,
    "debug": 20,
    "": 21,  # leafwise/__init__.py
    "testing": 22,
    "interop": 22,
    "check": 23,
    "cli": 24,
    "__main__": 25,
}


def module_name(path: Path) -> str:
    """Name a file of leafwise as a module, without the leading `leafwise`."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def entry(module: str) -> str:
    """Find the line of `LAYERS` that a module falls under."""
    while module not in LAYERS and "." in module:
        module = module.rpartition(".")[0]
    return module


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and target of each import of leafwise, inside functions as well."""
    is_module = {module_name(each) for each in FILES}
    package = ["leafwise", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            origin = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            # `from leafwise import errors` names a module, `from leafwise.errors import X` not.
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                known = inner.removeprefix("leafwise").strip(".") in is_module
                targets.append(inner if known else origin)
        for target in targets:
            if target == "leafwise" or target.startswith("leafwise."):
                yield node.lineno, target.removeprefix("leafwise").strip(".")


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_go_down(path: Path) -> None:
    """A module imports only what stands in a lower layer."""
    own = entry(module_name(path))
    assert own in LAYERS, f"{path.name} has no layer: give it one in LAYERS"
    wrong = [
        f"line {line}: layer {LAYERS[own]} imports {target or 'leafwise'}"
        for line, target in imports(path)
        if LAYERS.get(entry(target), 99) >= LAYERS[own]
        # Inside one package, but not by way of its __init__.
        and not (entry(target) == own and target != own)
    ]
    assert not wrong, wrong


@pytest.mark.parametrize("path", [*FILES, *SOURCE.parent.glob("*.py")], ids=str)
def test_file_is_short(path: Path) -> None:
    """No file of the library is longer than a reader's patience."""
    assert len(path.read_text().splitlines()) <= LONGEST


def test_jax_internals_have_one_home() -> None:
    """Only `_jaxcompat`, and the files beside it, mention `jax._src`."""
    mention = "jax" + "._src"
    elsewhere = [path.name for path in FILES if mention in path.read_text()]
    assert all(name.startswith("_jaxcompat") for name in elsewhere), elsewhere
