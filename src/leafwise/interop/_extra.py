"""Imports of libraries that leafwise does not depend on."""

import importlib
from typing import Any


def import_extra(module: str, extra: str = "", library: str = "") -> Any:
    """Import a module that needs a library which may be missing.

    Args:
        module: The module, of the library or of leafwise.
        extra: The extra of leafwise that brings the library, if there is one.
        library: The library; the package of `module` if not given.

    Raises:
        ModuleNotFoundError: The library is missing; the message says how to install it.
    """
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
