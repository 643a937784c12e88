"""Imports of libraries that an extra of leafwise brings."""

import importlib
from typing import Any


def import_extra(module: str, extra: str, library: str = "") -> Any:
    """Import a module that needs a library which may be missing.

    Args:
        module: The module, of the library or of leafwise.
        extra: The extra of leafwise that brings the library.
        library: The library; the package of `module` if not given.

    Raises:
        ModuleNotFoundError: The library is missing; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        library = library or module.partition(".")[0]
        if (error.name or "").partition(".")[0] != library:
            raise
        msg = f"{error.name} is not installed\n  fix: pip install 'leafwise[{extra}]'"
        raise ModuleNotFoundError(msg, name=error.name, path=error.path) from error
