"""Run the `>>>` examples in the docstrings of leafwise.

They may use every public name, `lw`, `jax`, `jnp` and `np` without importing it.
"""

import doctest
import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise

SOURCE = Path(leafwise.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    """Every example prints what its docstring says."""
    module = importlib.import_module(name)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    namespace = {each: getattr(leafwise, each) for each in leafwise.__all__}
    namespace |= {"lw": leafwise, "jax": jax, "jnp": jnp, "np": np}
    assert doctest.testmod(module, extraglobs=namespace, optionflags=options).failed == 0
