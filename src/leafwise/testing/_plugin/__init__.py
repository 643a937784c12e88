"""What `leafwise_pytest` does once JAX may be imported: each file is loaded when a run asks for it.

pytest loads the plugin before any `conftest.py`, which may still set how JAX starts. So
`leafwise_pytest.py` has the hooks and the items and imports nothing heavy. `budgets.py` holds the
markers `max_traces` and `max_compiles` and the log of the fixture `leafwise_traces`; `report.py`
records what JAX traces and compiles in one process, and sums that of all processes for the table
and the JSON file. Start with `leafwise_pytest.py`.
"""
