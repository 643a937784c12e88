"""A search: saved files with random edits are refused by name, or restored exactly.

`ci` tries some edits, `thorough` 5,000.
"""

import copy
import functools
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import leafwise as lw
from leafwise.interop import orbax as lob
from leafwise.interop import safetensors as lst

PROFILE = settings.get_current_profile_name()
many = settings(max_examples={"ci": 150, "thorough": 4_500}.get(PROFILE, 50))
some = settings(max_examples={"ci": 20, "thorough": 500}.get(PROFILE, 10))


@lw.pytree
class Part:
    w: Any
    b: Any
    act: lw.Static[Any] = jax.nn.relu


@lw.pytree
class Whole:
    parts: Any
    key: Any
    step: Any
    config: lw.Static[Any] = (1, "a", lw.FrozenMapping(x=1, y=(2.0, "]['")))


def tree(fill: float) -> dict[str, Any]:
    part = Part(jnp.full((2, 3), fill) * jnp.arange(3.0), jnp.full(3, fill, jnp.bfloat16))
    twin = Part(part.w + fill, part.b - fill, jax.nn.gelu)
    key = jax.random.split(jax.random.key(int(fill)), 2)
    whole = Whole([part, twin], key, np.int32(fill), lw.FrozenMapping(b=1, a=(True, -0.0)))
    return {"whole": whole, "rate": 0.5 * fill, "none": None, "empty": np.zeros((0, 2))}


SAVED, TARGET = tree(3.0), tree(0.0)


def bits(leaf: Any) -> tuple[Any, ...]:
    is_key = "key<" in str(getattr(leaf, "dtype", ""))
    data = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    return type(leaf), str(getattr(leaf, "dtype", "")), data.dtype, data.shape, data.tobytes()


EXPECTED = [bits(leaf) for leaf in jax.tree.leaves(SAVED)]


def check(load: Callable[[], Any], path: Path, edit: Any) -> None:
    """Let a file be refused by its name, or come back bit for bit, with statics and order."""
    try:
        back = load()
    except lw.errors.CheckpointError as error:
        assert str(path) in str(error), edit  # noqa: PT017  # an error is one of two answers
        assert "\n  fix: " in str(error)  # noqa: PT017
        event("refused")
    else:
        assert jax.tree.structure(back) == jax.tree.structure(SAVED), edit
        assert [bits(leaf) for leaf in jax.tree.leaves(back)] == EXPECTED, edit
        event("restored")


# ------------------------------------------------------------------ edits of bytes

Bytes = tuple[str, int, int, bytes]
places = st.integers(0, 2**20)
byte_edits = st.tuples(
    st.sampled_from(["flip", "insert", "delete", "cut", "repeat", "overwrite", "swap"]),
    *(places, places, st.binary(min_size=1, max_size=9)),
)


def edit_bytes(content: bytes, edit: Bytes) -> bytes:
    kind, first, second, new = edit
    start = first % (len(content) + 1)
    end = min(len(content), start + 1 + second % 40)
    before, inside, after = content[:start], content[start:end], content[end:]
    return {
        "flip": before
        + bytes(each ^ (1 << second % 8) for each in inside[:1])
        + content[start + 1 :],
        "insert": before + new + inside + after,
        "delete": before + after,
        "cut": before,
        "repeat": before + inside + inside + after,
        "overwrite": before + new + content[start + len(new) :],
        "swap": before + inside[::-1] + after,
    }[kind]


# ------------------------------------------------------------------ edits of JSON

HUGE = 10**18
VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**31,
        HUGE,
        1.0,
        1.5,
        "",
        "x",
        "../x",
        "/etc/passwd",
        "float32",
    ),
    *(
        "int32",
        "key<rbg>",
        [],
        {},
        [0],
        [HUGE, HUGE],
        [[]],
        {"": 0},
        {"python": "float"},
        "1",
        "\ud800",
    ),
    *({"dtype": "float64", "shape": []}, {"dtype": "float32", "shape": [3, 2]}, {"opaque": "x"}),
    *({"class": "list", "items": 1}, {"class": [], "pairs": [[1]]}, {"name": "jax.nn:gelu"}),
    functools.reduce(lambda inner, _: [inner], range(300), 0),
]
json_edits = st.tuples(
    st.sampled_from(["replace", "delete", "repeat", "retype", "rename", "exchange", "reverse"]),
    *(places, places, st.sampled_from(VALUES)),
)


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Return all places in JSON: a container and a key."""
    found: list[tuple[Any, Any]] = []
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        found += [(value, key), *spots(value[key])]
    return found


def retyped(value: Any) -> Any:
    if isinstance(value, dict):
        return [list(pair) for pair in value.items()]
    if isinstance(value, list):
        return {str(place): item for place, item in enumerate(value)}
    if isinstance(value, str):
        return [value]
    return float(value) if type(value) is int and value < HUGE else str(value)


def edit_json(value: Any, edit: tuple[str, int, int, Any]) -> Any:
    """Return JSON with an edit at one place."""
    kind, first, second, new = edit
    holder = [copy.deepcopy(value)]
    all_spots = spots(holder)
    container, key = all_spots[first % len(all_spots)]
    other, its = all_spots[second % len(all_spots)]
    old = container[key]
    if kind == "replace":
        container[key] = copy.deepcopy(new)
    elif kind == "retype":
        container[key] = retyped(old)
    elif kind == "exchange":
        container[key], other[its] = copy.deepcopy(other[its]), copy.deepcopy(old)
    elif kind == "reverse" and isinstance(old, list | dict):
        container[key] = old[::-1] if isinstance(old, list) else dict([*old.items()][::-1])
    elif isinstance(container, dict):
        if kind != "repeat":
            del container[key]
        if kind != "delete":
            container[f"{key}{new if isinstance(new, str) else ''}"] = old
            container[f"{key}x"] = old
    elif container is not holder:
        container[key : key + 1] = [old, old] if kind == "repeat" else []
    return holder[0]


# ------------------------------------------------------------------ safetensors


@functools.cache
def folder() -> Path:
    return Path(tempfile.mkdtemp())


@functools.cache
def saved_file() -> bytes:
    lst.save(SAVED, folder() / "whole")
    return (folder() / "whole").read_bytes()


def load_both(path: Path, edit: Any) -> None:
    """Load a file without and with `migrate`, which reads everything first."""
    check(lambda: lst.load(TARGET, path), path, edit)
    check(lambda: lst.load(TARGET, path, migrate=lambda _: None), path, edit)


@pytest.mark.works("safetensors", "a damaged, truncated or foreign file is an error that names it")
@many
@given(st.lists(byte_edits, min_size=1, max_size=3))
def test_edited_bytes_of_a_file(edits: list[Bytes]) -> None:
    """Flipped, added, lost and moved bytes, wherever they are."""
    path = folder() / "bytes"
    path.write_bytes(functools.reduce(edit_bytes, edits, saved_file()))
    load_both(path, edits)


@pytest.mark.works("safetensors", "a damaged, truncated or foreign file is an error that names it")
@many
@given(st.lists(json_edits, min_size=1, max_size=2), st.booleans())
def test_edited_json_of_a_file(edits: list[Any], signed: bool) -> None:
    """Any node of header, description and checksums; with a right checksum of the description."""
    content = saved_file()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    inner = header["__metadata__"]
    for name in inner:
        inner[name] = json.loads(inner[name])
    header = functools.reduce(edit_json, edits, header)
    inner = header.get("__metadata__") if isinstance(header, dict) else None
    if isinstance(inner, dict):
        for name in sorted(inner):
            inner[name] = json.dumps(inner[name])
        sums = json.loads(inner.get("leafwise.crc32", "0"))
        if signed and "leafwise" in inner and isinstance(sums, dict):
            sums["leafwise"] = zlib.crc32(inner["leafwise"].encode())
            inner["leafwise.crc32"] = json.dumps(sums)
    text = json.dumps(header).encode()
    path = folder() / "json"
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[start:])
    load_both(path, edits)


# ------------------------------------------------------------------ orbax


@functools.cache
def saved_folder() -> Path:
    lob.save(SAVED, folder() / "tree")
    return folder() / "tree"


def crc_of(path: Path) -> int:
    return zlib.crc32(path.read_bytes())


def sign(copied: Path) -> None:
    """Write the right checksum of the description, and of the list, where there are such."""
    path = copied / "leafwise-files.json"
    try:
        content = json.loads(path.read_text())
        content["crc32"]["leafwise.json"] = crc_of(copied / "leafwise.json")
        text = json.dumps(content["crc32"], sort_keys=True)
        content["of this list"] = zlib.crc32(text.encode())
        path.write_text(json.dumps(content))
    except (ValueError, TypeError, LookupError, OSError):
        return


file_edits = st.tuples(
    st.sampled_from(
        ["bytes", "json", "json", "exchange", "move", "remove", "folder", "link", "add"]
    ),
    *(places, places, byte_edits, json_edits),
)


def edit_folder(copied: Path, edit: Any) -> None:
    kind, first, second, in_bytes, in_json = edit
    files = sorted(path for path in copied.rglob("*") if path.is_file())
    path, other = files[first % len(files)], files[second % len(files)]
    if kind == "json":
        path = copied / ("leafwise.json", "leafwise-files.json")[first % 2]
        if path.is_file():
            path.write_text(json.dumps(edit_json(json.loads(path.read_bytes()), in_json)))
    elif kind == "bytes":
        path.write_bytes(edit_bytes(path.read_bytes(), in_bytes))
    elif kind == "exchange":
        one, two = path.read_bytes(), other.read_bytes()
        path.write_bytes(two)
        other.write_bytes(one)
    elif kind == "move":
        path.rename(path.with_name(path.name + "x"))
    elif kind == "add":
        path.with_name(path.name + "x").write_bytes(other.read_bytes())
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(other if second % 2 else saved_folder() / path.relative_to(copied))


@pytest.mark.slow
@pytest.mark.works("orbax", "a damaged or truncated checkpoint is an error that names it")
@some
@given(st.lists(file_edits, min_size=1, max_size=2), st.booleans())
def test_edited_checkpoints(edits: list[Any], signed: bool) -> None:
    """Any file changed, exchanged, moved, gone, added, or something else in its place."""
    copied = folder() / "copied"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(saved_folder(), copied)
    for edit in edits:
        try:
            edit_folder(copied, edit)
        except (ValueError, IndexError, OSError):  # nothing is left to edit
            break
    if signed:
        sign(copied)
    check(lambda: lob.restore(TARGET, copied), copied, edits)
