"""The commands `leafwise check` and `leafwise explain`.

`main` runs both, once `leafwise_cli` has parsed the command line. This wing is imported by the
pytest plugin alone, so its files have plain names, though none of them is public.

`leafwise check`: `check_targets` finds the pytree classes of modules and files. `check_classes`
checks one after the other: it changes fields (`check_fields`) and tries laws, in limited time. How
a class turned out is one value of `check_result`, which is JSON by itself; `check_report` prints it
as text and as annotations of GitHub, and the items of `leafwise_pytest_checks` show it law by law.
Start reading with `check_classes.check_class`.

`leafwise explain`: `explain_script` runs a script in a process of its own and waits, without JAX.
In each process of the script `leafwise_explain` runs first, and calls `recorder` once JAX is
imported; their records lie in a folder, which `recorded` reads into the report that
`leafwise._display` shows. `edits` carries out fixes, and `trial` tries them.
`notebook` runs the cells of a notebook, and `magics` is ``%%explain``.
"""
