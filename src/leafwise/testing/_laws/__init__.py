"""The laws of pytree classes: what must hold, how it is tested, what a violation says.

`law.py` names the laws. A law is tested by a function of one `Case` (`case.py`: an instance, and
what more is drawn), which returns if the law holds and calls `Case.fail` if not: `structure.py`
has those of flatten and unflatten, `keys.py` of treedefs, `travel.py` of copies, of pickles (with
`other_process.py`, which unpickles) and of transformations. `same.py` compares two instances.
`run.py` draws the cases, and finds the smallest that fails. Start with `structure.py`.

`leafwise.testing.check_pytree` has the table from `Law` to function (`testing/_check.py`);
`leafwise check` and the pytest plugin call it law by law.
"""
