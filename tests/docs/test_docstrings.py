"""Run the `>>>` examples in the docstrings of leafwise.

They may use every public name, `lw`, `jax`, `jnp` and `np` without importing it.
"""

import doctest
import importlib
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise

MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(leafwise.__path__, "leafwise.")
    if not found.name.endswith("__main__")
)


@pytest.mark.parametrize("name", ["leafwise", *MODULES])
def test_docstring_examples(name: str) -> None:
    """Every example prints what its docstring says."""
    module = importlib.import_module(name)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    namespace = {each: getattr(leafwise, each) for each in leafwise.__all__}
    namespace |= {"lw": leafwise, "jax": jax, "jnp": jnp, "np": np}
    assert doctest.testmod(module, extraglobs=namespace, optionflags=options).failed == 0
