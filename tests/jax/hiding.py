"""Hides what JAX has inside: this is the `sitecustomize` of the processes of test_hidden.py.

``HIDDEN`` in the environment has names, which get other ones wherever JAX says them, those of
code objects included; ``function:variable`` is a local variable, and ``version:0.13.0`` what JAX
calls itself.
"""

import os
import re
import types
from importlib.machinery import SourceFileLoader

NAMES = [each.partition(":") for each in os.environ.get("HIDDEN", "").split()]
WORDS = [name for name, colon, _ in NAMES if not colon]
VARIABLES = {(function, name) for function, colon, name in NAMES if colon}
# Not what is written in C++.
PATTERN = re.compile(rf"(?<!_lib\.)(?<!_ext\.)(?<!_jax\.)\b({'|'.join(WORDS) or '(?!)'})\b")
VERSION = re.compile(r"""^(_(?:release_)?version\b.* = ["'])[^"']+""", re.MULTILINE)

get_code = SourceFileLoader.get_code


def without(code: types.CodeType, names: frozenset[str] = frozenset()) -> types.CodeType:
    """Return code whose local variables, and those of its functions, have other names."""
    names |= {name for function, name in VARIABLES if function == code.co_name}

    def renamed(variables: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{each}_hidden" if each in names else each for each in variables)

    inner = (without(each, names) if hasattr(each, "co_code") else each for each in code.co_consts)
    return code.replace(
        co_varnames=renamed(code.co_varnames),
        co_cellvars=renamed(code.co_cellvars),
        co_freevars=renamed(code.co_freevars),
        co_consts=tuple(inner),
    )


def get_hidden_code(self: SourceFileLoader, name: str) -> types.CodeType | None:
    """Return the code of a module, in which names of JAX are other ones."""
    if not name.startswith("jax."):
        return get_code(self, name)
    text = self.get_data(self.path).decode()
    version = next((each for word, each in VARIABLES if word == "version"), "")
    hidden = VERSION.sub(rf"\g<1>{version}", text) if version and name == "jax.version" else text
    hidden = PATTERN.sub(r"\1_hidden", hidden)
    if hidden == text and not VARIABLES:
        return get_code(self, name)
    return without(self.source_to_code(hidden.encode(), self.path))


if NAMES:
    SourceFileLoader.get_code = get_hidden_code  # type: ignore[method-assign]
