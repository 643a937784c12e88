"""Everything that relies on JAX's internals: `jax._src`, its events and its tracebacks.

No other wing imports `jax._src`, and this one imports no wing but `_objects`. Where JAX's internals
are not the known ones (`compat.Internal`), each file returns less.

- `compat`: caches and options of jitted functions. Start here.
- `context`: the configuration that a trace depends on, and a number that leafwise adds to it.
- `events`: traces, lowerings and compiles as they happen, and `count_events`.
- `stack`: what JAX is doing, from its frames: for which call, and under which transformations.
- `compiles`: programs just before XLA compiles them.
- `frames`: JAX's frames in the traceback of an error, and the two trees that it compared.
- `processes`: texts exchanged between the processes of a program.

`_jit` uses the first three and the last; `_compare` uses the others, to explain JAX's errors.
"""
