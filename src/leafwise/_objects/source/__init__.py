"""Code: its names, its lines, and which line of the user made a call.

- `code`: what code reads outside itself; `is_importable`; which code is installed.
- `names`: the names that code reads, such as ``config.rate``, and their values.
- `call_site`: the user's line, and its number of runs.
- `loops`: the loops around a line, read from the source file.
"""
