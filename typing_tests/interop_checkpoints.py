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


def migrate(saved: orbax.SavedTree) -> None:
    saved.rename(".v", ".w")
    saved.statics[".n"] = 2
    saved.leaves[".w"] = saved.leaves[".w"].T
    saved.rename(".v")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def restored(params: Params, path: Path) -> None:
    orbax.save(params, path, allow_opaque=True, overwrite=True)
    assert_type(orbax.restore(params, path), Params)
    assert_type(orbax.restore({"p": params}, str(path), migrate=migrate), dict[str, Params])
    orbax.save_args(params, allow_opaque=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    safetensors.save(params, path)
    assert_type(safetensors.load(params, path, migrate=migrate), Params)
    safetensors.load(params)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orbax.restore(params, path, migrate=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def refused(error: lw.errors.CheckpointError) -> None:
    assert_type(error.differences, tuple[lw.types.Difference, ...])
    assert_type(error.differences[0].path, str)
