"""Checkpoints that a stranger wrote: refused by the name of the file, before memory is taken."""

import json
import os
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import leafwise as lw
from leafwise.interop import orbax as lob
from leafwise.interop import safetensors as lst
from leafwise.interop._checkpoint.stored import VERSION, from_json

pytestmark = pytest.mark.interop

DEEP = "[" * 100_000 + "]" * 100_000
HUGE = 10**18


@lw.pytree
class Params:
    w: Any
    keys: Any
    rate: Any = 0.5
    act: lw.Static[Any] = (1, "relu")


def params(fill: float = 1.0) -> Params:
    return Params(jnp.full((2, 3), fill), jax.random.split(jax.random.key(0), 2), 0.5 * fill)


def refuse(load: Callable[[], Any], *names: str) -> str:
    """Return the message of a refusal, which names the file and a fix."""
    with pytest.raises(lw.errors.CheckpointError) as caught:
        load()
    message = str(caught.value)
    assert "\n  fix: " in message
    for name in names:
        assert name in message
    return message


# ------------------------------------------------------------------ one safetensors file


def parts(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def write(path: Path, header: Any, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


Edit = Callable[[dict[str, Any]], object]


def in_tensor(name: str, **changes: Any) -> Edit:
    return lambda header: header[name].update(changes)


def in_metadata(**changes: Any) -> Edit:
    return lambda header: header["__metadata__"].update(changes)


HEADERS: dict[str, Edit] = {
    "dtype": in_tensor(".w", dtype="I32"),
    "unknown dtype": in_tensor(".w", dtype="X32"),
    "dtype that is a list": in_tensor(".w", dtype=["F32"]),
    "huge shape": in_tensor(".w", shape=[HUGE, HUGE]),
    "shape of text": in_tensor(".w", shape="2"),
    "other shape": in_tensor(".w", shape=[3, 2]),
    "huge offsets": in_tensor(".w", data_offsets=[0, HUGE]),
    "negative offsets": in_tensor(".w", data_offsets=[-24, 0]),
    "swapped offsets": in_tensor(".w", data_offsets=[24, 0]),
    "offsets of text": in_tensor(".w", data_offsets=["0", "24"]),
    "offsets of bools": in_tensor(".w", data_offsets=[False, True]),
    "one offset": in_tensor(".w", data_offsets=[24]),
    "no offsets": lambda header: header[".w"].pop("data_offsets"),
    "tensor that is a list": lambda header: header.update({".w": [1]}),
    "null": lambda header: header.update({".w": None}),
    "missing tensor": lambda header: header.pop(".w"),
    "further tensor": lambda header: header.update(
        {"x": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}
    ),
    "metadata that is a list": lambda header: header.update({"__metadata__": []}),
    "no metadata": lambda header: header.pop("__metadata__"),
    "no checksums": lambda header: header["__metadata__"].pop("leafwise.crc32"),
    "description that is a dict": in_metadata(leafwise={"format": "leafwise tree"}),
    "description without meaning": in_metadata(leafwise="{}"),
    "deep description": in_metadata(leafwise=DEEP),
    "surrogate in the description": in_metadata(leafwise="\ud800"),
    "checksums that are a list": in_metadata(**{"leafwise.crc32": "[]"}),
    "checksums that are null": in_metadata(**{"leafwise.crc32": "null"}),
    "deep checksums": in_metadata(**{"leafwise.crc32": DEEP}),
    "no JSON": in_metadata(**{"leafwise.crc32": "{"}),
}


@pytest.mark.works("safetensors", "a damaged, truncated or foreign file is an error that names it")
@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_lies_is_refused(name: str, tmp_path: Path) -> None:
    """Whatever the header says of tensors and metadata: refused, by the name of the file."""
    path = tmp_path / "file"
    lst.save(params(), path)
    header, data = parts(path)
    HEADERS[name](header)
    write(path, header, data)
    refuse(lambda: lst.load(params(0.0), path), str(path))
    refuse(lambda: lst.load(params(0.0), path, migrate=lambda _: None), str(path))


CONTENTS = {
    "nothing": b"",
    "seven bytes": bytes(7),
    "a header of 10**18 bytes": HUGE.to_bytes(8, "little") + b"{}",
    "a header of 2**64 - 1 bytes": b"\xff" * 8 + b"{}",
    "an empty header": bytes(8),
    "deep JSON": len(DEEP).to_bytes(8, "little") + DEEP.encode(),
    "not UTF-8": (1).to_bytes(8, "little") + b"\xff",
    "UTF-16": (6).to_bytes(8, "little") + "{}".encode("utf-16"),
    "a list": (2).to_bytes(8, "little") + b"[]",
    "a name twice": (15).to_bytes(8, "little") + b'{"a":{},"a":{}}',
    "NaN": (9).to_bytes(8, "little") + b'{"a":NaN}',
    "an int of 5,000 digits": (5006).to_bytes(8, "little") + b'{"a":' + b"1" * 5000 + b"}",
}


@pytest.mark.works("safetensors", "a damaged, truncated or foreign file is an error that names it")
@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_no_safetensors_file_is_refused(name: str, tmp_path: Path) -> None:
    """Neither nesting nor a claimed size is followed."""
    path = tmp_path / "file"
    path.write_bytes(CONTENTS[name])
    refuse(lambda: lst.load(params(), path), str(path))


def sizes(entry: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["leaves"].update({".w": entry})


DESCRIPTIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "version that is a bool": lambda content: content.update(version=True),
    "version that is a float": lambda content: content.update(version=1.0),
    "version 0": lambda content: content.update(version=0),
    "version -1": lambda content: content.update(version=-1),
    "version of a long int": lambda content: content.update(version=10**4000),
    "no version": lambda content: content.pop("version"),
    "format that is a list": lambda content: content.update(format=[]),
    "no leaves": lambda content: content.pop("leaves"),
    "leaves that are pairs": lambda content: content.update(leaves=[[".w", {"python": "int"}]]),
    "classes that are null": lambda content: content.update(classes=None),
    "class that is a list": lambda content: content["classes"].update({"": ["Params"]}),
    "class that is a number": lambda content: content["classes"].update({"": 1}),
    "a path twice": lambda content: content["statics"].update({".w": 1}),
    "huge shape": sizes({"dtype": "float32", "shape": [HUGE, HUGE]}),
    "huge empty shape": sizes({"dtype": "float32", "shape": [0, HUGE, HUGE]}),
    "many dimensions": sizes({"dtype": "float32", "shape": [0] * 100}),
    "bool in a shape": sizes({"dtype": "float32", "shape": [True, 3]}),
    "float in a shape": sizes({"dtype": "float32", "shape": [2.0, 3]}),
    "dtype of objects": sizes({"dtype": "object", "shape": [2, 3]}),
    "structured dtype": sizes({"dtype": "f4,f4", "shape": [2, 3]}),
    "dtype that is a list": sizes({"dtype": [["a", "f4"]], "shape": [2, 3]}),
    "dtype of text": sizes({"dtype": "U5", "shape": [2, 3]}),
    "void": sizes({"dtype": "void", "shape": [2, 3]}),
    "short name of a dtype": sizes({"dtype": "f4", "shape": [2, 3]}),
    "scalar that is a list": sizes({"python": ["int"]}),
    "unknown key": sizes({"key": "key<new>", "shape": [2]}),
    "key that is null": sizes({"key": None, "shape": [2]}),
    "two kinds": sizes({"dtype": "float32", "key": "key<fry>", "shape": [2]}),
    "more": sizes({"dtype": "float32", "shape": [2, 3], "python": "int"}),
    "null": sizes(None),
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_description_of_wrong_types_is_refused(name: str, tmp_path: Path) -> None:
    """Wrong types, versions, dtypes and shapes are refused when the description is read."""
    lst.save(params(), tmp_path / "file")
    header, _ = parts(tmp_path / "file")
    content = json.loads(header["__metadata__"]["leafwise"])
    assert from_json(json.dumps(content), "the file")
    DESCRIPTIONS[name](content)
    refuse(lambda: from_json(json.dumps(content), "the file"), "the file")


@pytest.mark.parametrize("name", ["huge shape", "huge empty shape", "many dimensions"])
def test_no_memory_is_taken_for_what_is_only_claimed(name: str, tmp_path: Path) -> None:
    """A description with right checksums that claims huge arrays is refused at no cost."""
    path = tmp_path / "file"
    lst.save(params(), path)
    header, data = parts(path)
    content = json.loads(header["__metadata__"]["leafwise"])
    DESCRIPTIONS[name](content)
    sums = json.loads(header["__metadata__"]["leafwise.crc32"])
    text = json.dumps(content)
    sums["leafwise"] = zlib.crc32(text.encode())
    header["__metadata__"] |= {"leafwise": text, "leafwise.crc32": json.dumps(sums)}
    header[".w"]["shape"] = content["leaves"][".w"]["shape"]
    write(path, header, data)
    tracemalloc.start()
    refuse(lambda: lst.load(params(), path, migrate=lambda _: None), str(path))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_a_newer_format_says_so() -> None:
    """A version above ours asks for a newer leafwise."""
    text = json.dumps({"format": "leafwise tree", "version": VERSION + 1})
    assert "newer leafwise" in refuse(lambda: from_json(text, "the file"), "the file")


def place_folder(path: Path) -> None:
    path.mkdir()


def place_pipe(path: Path) -> None:
    os.mkfifo(path)


def place_broken_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def place_loop(path: Path) -> None:
    path.symlink_to(path)


PLACES = [place_folder, place_pipe, place_broken_link, place_loop]


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_file_is_refused(place: Callable[[Path], None], tmp_path: Path) -> None:
    """A folder, a pipe and a link to nothing in place of a file are named, and not waited for."""
    place(tmp_path / "file")
    refuse(lambda: lst.load(params(), tmp_path / "file"), str(tmp_path / "file"), "not a file")


def test_a_file_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system refuses to read is an error that names the file."""
    lst.save(params(), tmp_path / "file")
    real = Path.open

    def denied(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.name == "file":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", denied)
    refuse(lambda: lst.load(params(), tmp_path / "file"), "Permission denied")


# ------------------------------------------------------------------ a folder of orbax


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lob.save(params(), tmp_path / "tree")
    return tmp_path / "tree"


def crc_of(checksums: Any) -> int:
    return zlib.crc32(json.dumps(checksums, sort_keys=True).encode())


def lists(folder: Path, **changes: Any) -> None:
    """Change the list of checksums, and the checksum of the list."""
    path = folder / "leafwise-files.json"
    content = json.loads(path.read_text())["crc32"] | changes
    path.write_text(json.dumps({"crc32": content, "of this list": crc_of(content)}))


OUTSIDE = [
    *("../secret", "/etc/passwd", "d/../../secret", "", ".", "..", "d//x", "./d", "d/", "d/."),
    *("C:/secret", "C:secret", "..\\secret", "\\\\host\\share", "a\0b", "a\nb", "\ud800"),
]


@pytest.mark.works("orbax", "a damaged or truncated checkpoint is an error that names it")
@pytest.mark.parametrize("name", OUTSIDE, ids=ascii)
def test_names_that_lead_out_are_refused_before_anything_is_opened(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file list that names what is not in the folder: nothing of it is opened."""
    lists(folder, **{name: 1})
    monkeypatch.setattr(lob, "open_file", lambda path: pytest.fail(f"opened {path}"))
    refuse(lambda: lob.restore(params(), folder), "leafwise-files.json", repr(name))


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", DEEP, '{"crc32": null}', '{"crc32": {"leafwise.json": true}}', "{}"),
        *('{"crc32": [["leafwise.json", 1]]}', '{"crc32": {"leafwise.json": NaN}}', "\ufeff{}"),
        *('{"crc32": {}, "crc32": {}}', '{"crc32": {}}', '{"crc32": {"leafwise.json": 1e400}}'),
    ],
    ids=range(13),
)
def test_a_file_list_that_is_none_is_refused(text: str, folder: Path) -> None:
    """Malformed or shortened lists of checksums are refused by their name."""
    (folder / "leafwise-files.json").write_text(text)
    refuse(lambda: lob.restore(params(), folder), "leafwise-files.json")


def test_a_shortened_file_list_is_refused(folder: Path) -> None:
    """A list that lacks a file does not let that file pass unread."""
    path = folder / "leafwise-files.json"
    content = json.loads(path.read_text())
    content["crc32"].pop("manifest.ocdbt")
    path.write_text(json.dumps(content))
    refuse(lambda: lob.restore(params(), folder), "leafwise-files.json", "not what was written")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["leafwise.json", "leafwise-files.json", "manifest.ocdbt"])
def test_something_else_in_place_of_a_file_is_refused(
    place: Callable[[Path], None], name: str, folder: Path
) -> None:
    """A folder, a pipe and a link to nothing are refused by the name of the file."""
    (folder / name).unlink()
    place(folder / name)
    refuse(lambda: lob.restore(params(), folder), name)


def test_a_link_that_leads_out_is_refused(folder: Path, tmp_path: Path) -> None:
    """A file, or a folder of files, behind a link is not read, though it has the same bytes."""
    for name in ("manifest.ocdbt", "d"):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
        refuse(lambda: lob.restore(params(), folder), name, "leads out")
        (folder / name).unlink()
        (tmp_path / name).rename(folder / name)
    assert lob.restore(params(0.0), folder).w.sum() == 6
    (folder / "manifest.ocdbt").rename(folder / "elsewhere")
    (folder / "manifest.ocdbt").symlink_to("elsewhere")
    assert lob.restore(params(0.0), folder).w.sum() == 6


def test_a_checkpoint_behind_a_link_is_read(folder: Path, tmp_path: Path) -> None:
    """The folder itself may be a link, as users have for the newest."""
    (tmp_path / "latest").symlink_to(folder)
    assert lob.restore(params(0.0), tmp_path / "latest").w.sum() == 6


def test_without_checksums_names_and_types_are_checked(folder: Path) -> None:
    """A handler that compares no checksums refuses a malformed list all the same."""
    target = lob.Restore(params())
    with ocp.Checkpointer(lob.Handler(checksums=False)) as trusting:
        assert trusting.restore(folder, args=target).w.sum() == 6
        lists(folder, **{"../secret": 1})
        refuse(lambda: trusting.restore(folder, args=target), "'../secret'")


def test_other_arrays_than_described_are_refused(folder: Path, tmp_path: Path) -> None:
    """Arrays of orbax that are whole, but of another shape than described, are refused."""
    other = Params(jnp.ones((3, 2)), params().keys)
    lob.save(other, tmp_path / "other")
    (tmp_path / "other" / "leafwise.json").write_bytes((folder / "leafwise.json").read_bytes())
    crc = zlib.crc32((folder / "leafwise.json").read_bytes())
    lists(tmp_path / "other", **{"leafwise.json": crc})
    refuse(lambda: lob.restore(params(), tmp_path / "other"), str(tmp_path / "other"), ".w")


def test_keys_of_other_data_are_refused(tmp_path: Path) -> None:
    """Key data of another implementation is not taken for keys."""
    path = tmp_path / "file"
    lst.save(params(), path)
    header, data = parts(path)
    content = header["__metadata__"]["leafwise"].replace("key<fry>", "key<rbg>")
    sums = json.loads(header["__metadata__"]["leafwise.crc32"])
    sums["leafwise"] = zlib.crc32(content.encode())
    header["__metadata__"] |= {"leafwise": content, "leafwise.crc32": json.dumps(sums)}
    write(path, header, data)
    target = Params(params().w, jax.random.split(jax.random.key(0, impl="rbg"), 2))
    refuse(lambda: lst.load(target, path), str(path), ".keys")
    assert np.asarray(jax.random.key_data(target.keys)).shape == (2, 4)
