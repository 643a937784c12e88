"""Imports of libraries that leafwise does not depend on."""

import importlib
from typing import Any


def import_extra(module: str, extra: str = "", library: str = "") -> Any:
    """Import a module that needs a library which may be missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        library = library or module.partition(".")[0]
        if (error.name or "").partition(".")[0] != library:
            raise
        wanted = f"'leafwise[{extra}]'" if extra else library
        raise ModuleNotFoundError(
            f"{error.name} is not installed\n  fix: pip install {wanted}",
            name=error.name,
            path=error.path,
        ) from error
