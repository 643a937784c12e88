"""The commands `leafwise check` and `leafwise explain`.

`main` runs both, once `leafwise_cli` has parsed the command line. Nobody imports this wing, so its
files have plain names, though none of them is public; the pytest plugin alone finds its classes
through `targets`, and tries `laws`.

`leafwise check`: `targets` finds the pytree classes of modules and files. `run` checks one class
after the other: it changes fields (`fields`), and `laws` tries those of `leafwise.testing`, for the
pytest plugin, too. The outcome is in `records`; `report` prints it, `documents` writes JSON
and annotations of GitHub. Start reading with `run`.

`leafwise explain`: `explain_script` runs a script in a process of its own and waits, without JAX.
In each process of the script `leafwise_explain` runs first, and calls `recorder` once JAX is
imported; their records lie in a folder, which `recorded` reads into the report that
`leafwise._display` shows. `edits` carries out fixes, and `trial` tries them.
`notebook` runs the cells of a notebook, and `magics` is ``%%explain``.
"""
