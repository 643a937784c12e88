"""The laws of pytree classes: what must hold, how it is tested, how a violation is worded.

`law.py` names the laws. A law is tested by a function of one `Case` (`case.py`: an instance and
further draws), which returns if the law holds and calls `Case.fail` if not: `structure.py` has
those about flatten and unflatten, `keys.py` about treedefs, `travel.py` about copies, pickles
(with `other_process.py`, which unpickles) and transformations. `same.py` compares two instances.
`run.py` draws the cases, and finds the smallest that fails. Start with `structure.py`.

The table from `Law` to function is in `testing/_check.py`; `leafwise check` and the pytest
plugin call it law by law.
"""
