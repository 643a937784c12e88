"""What was found, as values that do not import JAX: below `_captures`, `_compare` and `_jit`.

`reasons` has the values that describe a difference: `Reason`, `Fix` and `Explanation`. `records`
has what JAX did while a script ran, `findings` and `first_compiles` group it by line and cause, and
`report` has all of it, which `json` writes and reads. A value has its own sentence, made of
`words`; what several values make together is drawn by `_display`.
"""
