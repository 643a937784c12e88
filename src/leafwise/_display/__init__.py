"""Diagrams and reports: values in, text out. Nothing here asks JAX for anything but avals.

`diagram` is `lw.show`: it measures each branch of a tree, builds rows, and formats them as lines.

`reasons` has the values that describe a difference: `Reason`, `Fix` and `Explanation`. `report`
has the records of ``leafwise explain`` and their JSON; `findings` groups what JAX did again;
`tables` prints a report with rich, or for GitHub. None of these imports JAX, and only `tables`
needs rich. `words` has the texts that all of them share, and the table that `lw.captures`
prints.

Used by `_compare`, `_captures`, `cli` and the pytest plugin; notebooks use it through
`_classes.instance`.
"""
