"""Which values may be static, their canonical form, and the one key that stands for them.

Start at `key.key_of`: it turns the static values of an instance into its `StaticKey`, the
aux_data that JAX compares. Below it:

- `form`: `canonicalise` and the table `CANONICAL`, what "the same value" means for each type;
  `content` is the same for functions that are compared by content, with their `guards`.
- `findings`: why a value cannot be static, with the message of each reason.
- `portable`: statics as JSON that means the same in another process, for checkpoints and digests.
- `snapshot`: what can be reached through a value, to find tracers and changes in place.
- `hash_nodes`: children that bring the statics into a treedef's hash, for ``many_statics``.

`_classes` makes keys in constructors and at flattens, `_trees` and `_compare` read them, and
`interop` gives them to the classes of other libraries.
"""
