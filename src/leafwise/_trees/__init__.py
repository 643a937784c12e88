"""Pytrees of any kind: their paths, nodes and leaves; selecting, updating, splitting, joining.

- `paths`: the text of a path, its steps, and the error for one that leads nowhere. Start here.
- `nodes`: `open_node` for one node, `TreeWalk` for all, `FlatTree` for the leaves by place.
- `leaves`: `Leaf`, what JAX uses of one argument leaf.
- `equality`: how static values compare.
- `select`: `leafwise.select`, `mask`, `labels`, `partition`.
- `combine`: `leafwise.combine` and `axes`.
- `update`: `leafwise.update` and `replace`, and the parts of any value.
- `shardings`: `leafwise.shardings` and `shard`.
- `roles`: which attributes are static or dynamic, for `testing` and `cli`.

`_compare`, `_captures`, `_display` and `interop` read trees through `nodes` and `leaves`.
"""
