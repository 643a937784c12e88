"""Pictures and reports: values in, text out. Nothing here runs or asks JAX for anything but avals.

`lw.show` goes `rows` (bytes and shared arrays of each branch, which rows, and their texts) ->
`diagram` (text, which rich colours). Start reading there.

`reasons` has the values that a difference consists of: `Reason`, `Fix` and `Explanation`. `report`
is what ``leafwise explain`` records, and its JSON; `findings` gathers what JAX did again; `tables`
prints a report with rich, or for GitHub. None of these imports JAX, and `tables` is the one that
cannot be imported without rich. `captures_table` is what `lw.captures`
prints, and `words` has the texts that all of them share.

Used by `_compare`, `_captures`, `cli` and the pytest plugin; notebooks come through
`_classes.display`.
"""
