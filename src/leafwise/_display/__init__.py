"""Pictures and reports: values in, text out. Nothing here runs or asks JAX for anything but avals.

`diagram` is `lw.show`: it measures each branch of a tree, makes rows, and of them lines of text.

`reasons` has the values that a difference consists of: `Reason`, `Fix` and `Explanation`. `report`
is what ``leafwise explain`` records, and its JSON; `findings` gathers what JAX did again; `tables`
prints a report with rich, or for GitHub. None of these imports JAX, and `tables` is the one that
cannot be imported without rich. `words` has the texts that all of them share, and the table that
`lw.captures` prints.

Used by `_compare`, `_captures`, `cli` and the pytest plugin; notebooks come through
`_classes.instance`.
"""
