"""What `import leafwise` costs."""

import json
import sys

import pytest
from tests.kit.processes import run_python

import leafwise

CORE = ("jax", "numpy")
PROGRAM = f"""
import json, sys
import {", ".join(CORE)}
before = set(sys.modules)
import leafwise
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.mark.slow
def test_import_loads_nothing_else() -> None:
    """`import leafwise` loads jax, numpy and the standard library only; printing loads more."""
    loaded = {name.partition(".")[0] for name in json.loads(run_python(PROGRAM))}
    assert loaded - {"leafwise", *CORE} - sys.stdlib_module_names == set()


@pytest.mark.parametrize(
    ("name", "home"),
    [("StaticFieldError", "errors.StaticFieldError"), ("Explanation", "types.Explanation")],
)
def test_a_name_that_is_elsewhere(name: str, home: str) -> None:
    """Errors and result types are a step further in, and the message says where."""
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': it is lw\.{home}$"):
        getattr(leafwise, name)
    with pytest.raises(AttributeError, match=r"no attribute 'Nothing'$"):
        leafwise.Nothing  # noqa: B018


@pytest.mark.slow
def test_jax_is_imported_by_whoever_uses_it() -> None:
    """What is set in the environment after `import leafwise` holds; each name is there, once."""
    program = """
import sys
import leafwise, leafwise_cli
import leafwise._display.tables
import leafwise.cli.explain_script  # the parent of the script
assert not {"jax", "numpy"} & set(sys.modules)
for name in leafwise.__all__:
    assert getattr(leafwise, name) is getattr(leafwise, name)
assert "jax" in sys.modules
"""
    run_python(program)
