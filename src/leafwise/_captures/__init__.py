"""What a function reads from outside its arguments, and whether that has changed.

- `bytecode`: what one piece of code reads, by following its instructions (`reads_of`).
- `walk`: all places that a function and the functions it calls read (`bindings_of`); `places`
  says how to get to the value of each.
- `captures`: `lw.captures`, a table of them, with `treatment` (how JAX treats the values),
  `source_lines` (where they are bound and read) and `fixes` (how they can be passed instead).
- `fingerprint`: the values of all captures of a function at one time (`fingerprint_function`);
  `fingerprinter` takes the fingerprint of one value, by its kind (`fingerprint_kinds`).
- `hoist`: `lw.hoist`, which makes captured arrays arguments: `exchange` traces the function, and
  exchanges the constants of its program that are one of the arrays.

Start with `walk.bindings_of`: all else is built on it. `_jit` compares fingerprints at each call,
and `cli.explain_script` shows the table. Nothing of the user's code runs here.
"""
