"""Checkpoints, whatever writes the arrays.

`checkpoint` has `pack`, which takes a tree apart into a description and arrays, `unpack`, which
restores a target from them, and `SavedTree`, which users get to migrate. `stored` has what stands
in a file: the description of `leafwise._compare.description` as text, and the entry of each array.
Used by `leafwise.interop.orbax` and `.safetensors`.
"""
