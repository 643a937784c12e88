"""What a Python value, class, function or piece of code consists of, found without running it.

The lowest wing; every other uses it. It knows nothing of pytree classes.

- `attributes`: the attributes of an object, with or without running the user's code; what the
  class of a value promises (`record_fields`, `compares_by_identity`). Start here.
- `code`: what a code object reads outside itself; `is_importable`; which code is installed.
- `names`: the names that code spells, ``config.rate``, and what they lead to.
- `parts`: what a value consists of: `kind_of`, the table over which all other wings fold.
- `frozen`: `freeze`, `FrozenMapping` and `StaticArray`, for static fields.
- `methods`: `BoundMethod`, a pytree, and `JittedFunction`, which `leafwise.jit` returns.
- `describe` and `text`: a value as text, in keys and in messages.
- `locks`: those that a child process finds free, whoever held them at the fork.
- `classes`: what the type of a value says, where ``isinstance`` would ask it; tables by class.
- `stand_ins` and `call_site`: `MISSING` and `ById`; the user's line, and how often it has run.
"""
