"""How two trees or two calls differ, what JAX does about it, and how to fix it.

Pure: values in, values out. Nothing here runs user code or warns, except `carry`, which traces
a step.

- `signature`: the record of one call, `Signature`, and its `Explanation` against the nearest of
  several earlier ones: it compares configuration, devices and arguments, then the trees, in
  `tree_differences`. Start reading here.
- `fixes`: `Cause`, why calls differ, which words the difference and its fix. The values
  themselves, `Reason` and `Fix`, are in `_findings.reasons`, which does not import JAX.
- `diff`, `carry`: `lw.diff`, `lw.stable_carry`.

Used by `_jit`, which explains the calls that it sees, by `testing` and by `cli`.
"""
