"""Pytrees of any kind: their paths, nodes and leaves; selecting, updating, splitting, joining.

- `paths`: parsing and formatting paths, and the error for one that leads nowhere. Start here.
- `nodes`: `open_node` for one node, `TreeWalk` for all, `FlatTree` for the leaves by index.
- `leaves`: `Leaf`, the facts about one argument leaf that JAX uses.
- `equality`: how static values compare.
- `select`: `leafwise.select`, `mask`, `labels`, `partition`.
- `combine`: `leafwise.combine` and `axes`.
- `update`: `leafwise.update` and `replace`, and opening any value into parts.
- `shardings`: `leafwise.shardings` and `shard`.
- `roles`: which attributes are static or dynamic, for `testing` and `cli`.

`_compare`, `_captures`, `_display` and `interop` read trees through `nodes` and `leaves`.
"""
