"""What a Python value, class, function or piece of code consists of, found without running it.

The lowest wing: all others use it. It knows nothing about pytree classes.

- `attributes`: the attributes of an object, read without user code; what its class promises
  (`record_fields`, `compares_by_identity`). Start here.
- `source`: code, its names and lines, and the line that made a call.
- `parts`: what a value consists of: `kind_of`, the table that all other wings fold over.
- `frozen`: `freeze`, `FrozenMapping` and `StaticArray`, for static fields.
- `methods`: `BoundMethod`, a pytree, and `JittedFunction`, which `leafwise.jit` returns.
- `describe` and `text`: a value as text, in keys and in messages.
- `locks`: locks that are free in a child process, whichever thread held them at the fork.
- `classes`: checks by the type of a value, where ``isinstance`` may run code; tables by class.
- `stand_ins`: `MISSING` and `ById`.
"""
