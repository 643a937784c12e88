"""Saving and restoring: what a checker sees of orbax and of safetensors."""

from pathlib import Path
from typing import assert_type

import jax

import leafwise as lw
from leafwise.interop import orbax, safetensors


@lw.pytree
class Params:
    w: jax.Array
    n: int = lw.static_field(default=2)


def restored(params: Params, path: Path) -> None:
    orbax.save(params, path, overwrite=True)
    assert_type(orbax.restore(params, path), Params)
    assert_type(orbax.restore({"p": params}, str(path), renamed={".v": ".w"}), dict[str, Params])
    safetensors.save(params, path)
    assert_type(safetensors.load(params, path, renamed={".v": ".w"}), Params)
    safetensors.load(params)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orbax.restore(params, path, renamed=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def refused(error: lw.errors.CheckpointError) -> None:
    assert_type(error.differences, tuple[lw.types.Difference, ...])
    assert_type(error.differences[0].path, str)
