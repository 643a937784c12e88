"""How two trees or two calls differ, what JAX makes of it, and how to fix it.

Pure: values in, values out. Nothing here runs, warns or raises for a call of the user's, but
`carry`, which traces a step, and `jax_errors`, which adds notes to errors that JAX raised.

- `signature`: the record of one call, `Signature`. Start reading here.
- `explain`: the `Explanation` of a call, against the nearest of several earlier ones: what
  differs in configuration, devices and arguments, then `tree_differences`.
- `fixes`: `Cause`, what makes calls differ, which makes the fix and its words. The values
  themselves, `Reason` and `Fix`, are in `_display.reasons`, where no JAX is needed to read them.
- `description`: a tree as JSON, for a comparison with another process; `digest`: `lw.digest`.
- `program`: a lowered program as operations, its fingerprint, and where two of them differ.
- `diff`, `carry`, `jax_errors`: `lw.diff`, `lw.stable_carry`, `lw.debug.explain_errors`.

Used by `_jit`, which explains the calls that it sees, by `testing` and by `cli`.
"""
