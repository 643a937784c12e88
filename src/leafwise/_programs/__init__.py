"""What JAX makes programs from, and what they consist of: for other processes and later runs.

- `description`: a tree as JSON, for a comparison with another process; `digest`: `lw.digest`.
- `program`: a lowered program as operations, its fingerprint, and the differences between two.
- `first_compile`: where most operations of a program come from.

Used by `_jit`, `interop` and `cli`.
"""
