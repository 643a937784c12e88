"""Values and errors in words that are the same in every process."""

import re
import traceback
from pathlib import Path
from typing import Any, Final

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np

import leafwise
from leafwise._objects.describe import describe
from leafwise._objects.text import describe_array, shorten

_ADDRESS: Final = re.compile(r" \(compared by identity, at 0x[0-9a-f]+\)|,? at 0x[0-9a-f]+")


def plain(text: str) -> str:
    """Return a text without addresses, which differ from run to run."""
    return _ADDRESS.sub("", text)


def short(value: object, width: int = 30) -> str:
    """Return a value's repr, without addresses and cut to a width."""
    text = plain(shorten(value, 10 * width))  # first: an address must not be cut in two
    return text if len(text) <= width else text[: width - 3] + "..."


def change_of(before: str, after: str) -> str:
    """Return ``2 -> 3``; objects that look alike are told to be two."""
    return f"{before} -> {after}" if before != after else f"{before} -> another"


def say_static(value: Any) -> str:
    """Return a static value in words, without what only a key's repr needs."""
    return plain(describe(value))


def is_key(leaf: Any) -> bool:
    """Return whether a leaf is an array of random keys."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def say_leaf(leaf: Any) -> str:
    """Return ``float32[3]`` for an array, with its element if it has one; else the value."""
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return short(leaf)
    text = describe_array(leaf) + (" weak" if getattr(leaf, "weak_type", False) else "")
    if is_key(leaf) or np.size(leaf) != 1:
        return text
    item = np.asarray(leaf).item()
    return f"{text} {item:.6g}" if isinstance(item, float) else f"{text} {item}"


_MACHINERY: Final = tuple(
    str(Path(module.__file__).parent) for module in (leafwise, hypothesis, jax) if module.__file__
)


def tell(error: BaseException) -> str:
    """Return an error's class, text and notes, and the user's line that raised it."""
    notes = [each for each in getattr(error, "__notes__", ()) if not each.startswith("----")]
    parts = [f"{type(error).__name__}: {error}", *notes]  # without JAX's note on hidden frames
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_MACHINERY, "<"))
    ]
    if frames:
        parts.append(f"raised in {Path(frames[-1].filename).name}, line {frames[-1].lineno}")
    return plain("\n  ".join(part.rstrip(": ") for part in parts))
