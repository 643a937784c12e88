"""Diagrams and reports: values in, text out. Nothing here asks JAX for anything but avals.

`diagram` is `lw.show`: it measures each branch of a tree, builds rows, and formats them as lines.
`captures` is the table that `lw.captures` prints. `tables` prints a report of `leafwise explain`
with rich, or for GitHub; only it needs rich. Notebooks use this wing through `_classes.instance`.
"""
