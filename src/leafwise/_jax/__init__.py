"""Everything that knows JAX from inside: versions, `jax._src`, its events and its tracebacks.

No other wing imports `jax._src`, and nothing here imports a wing but `_objects`. Each file
answers with less where JAX's internals are not those that were tested (`compat.is_known`).

- `compat`: caches and options of jitted functions. Start here.
- `context`: the configuration that a trace depends on, and a number of leafwise's own.
- `events`: traces, lowerings and compiles as they happen, and `count_events`.
- `stack`: what JAX is doing, from its frames: for which call, and under which transformations.
- `compiles`: programs just before XLA compiles them.
- `frames`: JAX's frames in the traceback of an error, and the two trees that it compared.
- `processes`: texts exchanged between the processes of a program, and which of them differ.

`_jit` uses the first three and the last; `_compare` uses the others, to explain JAX's errors.
"""
