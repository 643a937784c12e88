"""The commands `leafwise check`, `leafwise explain` and `leafwise compare`.

`main` runs them, once `leafwise_cli` has parsed the command line. Only the pytest plugin imports
from here, and nothing here is public.

`leafwise check`: `check_targets` finds the pytree classes in modules and files. `check_classes`
checks each in limited time: it changes fields (`check_fields`) and tests the laws. The outcome for
a class is a value of `check_result`, which converts to JSON; `check_report` prints it as text or as
GitHub annotations, and the items of `leafwise_pytest_checks` show it law by law. Start reading with
`check_classes.check_class`.

`leafwise explain`: `explain_script` runs a script in a process of its own and waits, without JAX.
In each process of the script `leafwise_explain` runs first, and calls `recorder` once JAX is
imported; their records go to a folder, which `recorded` reads into the report that
`leafwise._display` shows. `edits` turns fixes into edits, and `trial` tries them.
`notebook` runs the cells of a notebook, and `magics` provides ``%%explain``. `signals` are handled
for both commands.
"""
