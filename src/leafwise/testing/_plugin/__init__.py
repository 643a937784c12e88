"""What `leafwise_pytest` does once JAX may be imported: each file is loaded when a run asks for it.

pytest loads the plugin before any `conftest.py`, which may still set how JAX starts. So
`leafwise_pytest.py` has the hooks and imports nothing heavy, and these files do the work:
`budgets.py` holds the markers `max_traces`, `max_compiles`, `check_captures` and the log of the
fixture `leafwise_traces`; `items.py` makes a test item for each pytree class and law; `counts.py`
counts what JAX traces and compiles in one process, and `report.py` merges the counts of all
processes into the table and the JSON file. Start with `leafwise_pytest.py`.
"""
