"""Checkpoints, whatever writes the arrays.

`checkpoint` has `pack`, which takes a tree apart into a description and arrays, `unpack`, which
restores a target from them, and `SavedTree`, which users get to migrate. `description` says what
a tree is apart from its data, and compares two descriptions. `portable` turns statics into JSON
that means the same in another process. Used by `leafwise.interop.orbax`, `.safetensors` and, for
statics alone, `.flax`.
"""
