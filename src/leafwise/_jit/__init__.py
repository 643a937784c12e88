"""`lw.jit` and what counts its traces: the edge of the library, where it runs, warns and raises.

- `jit`: `lw.jit` itself. What it returns holds a `ProgramLog` (`programs`) of the programs that
  JAX made for one function (`callee`), and a `Guard` (`checked_calls`) that checks its captures.
- `recorder`: the events of JAX, each with its function, calling line and explanation.
- `outside`: whether a line outside jitted functions makes JAX compile the same again.
- `jitted_call`: code that jits a call outside jitted functions, as a fix.
- `jax_errors`: `lw.debug.explain_errors`, which adds notes to errors that JAX raised.
- `audit`: `leafwise explain --audit`.
- `watch`: `lw.watch`, `lw.budget` and `lw.no_retrace`, which count these events.
- `storm`: `lw.storm_guard`.
- `everywhere`: `lw.distributed.assert_same`, and `lw.jit(same_everywhere=True)`.
- `blocks`: the blocks of `lw.debug.check_captures`, and what they compare.

Start with `jit.TracedBody`, which JAX traces in place of the user's function. The pytest plugin
(`testing._budget_markers`), `cli.explain_script` and `debug` use this wing.
"""
