"""What a function reads from outside its arguments, and what becomes of that.

- `observe`: which code of the user's runs in a trace, with its functions and arguments.
- `places`: where a value is read, one place of a way such as `config.rate`, and what is there now.
- `bindings`: the places that the functions that ran read (`bindings_of`); `reachable` makes up the
  runs of a function that was not traced.
- `fingerprint`: what is in these places, as something that can be kept and compared;
  `forms` does that for one value. `observation` is that of one trace.
- `captures`: `lw.captures`, with the treatments of `treatment`.
- `hoist`: `lw.hoist`.
- `fixes`: how a captured value can be passed instead.

Start with `bindings.bindings_of`: all else is built on it. `_jit` compares at each call.
"""
