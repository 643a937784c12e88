"""Which values may be static, their canonical form, and the one key that stands for them.

Start at `key.key_of`: it turns the static values of an instance into its `StaticKey`, the
aux_data that JAX compares. Below it:

- `fold`: the account of what values hold, under a policy: `form` is how keys compare, with a table
  of what "the same value" means for each type, and `content` how they compare functions by content,
  with `guards` that say fast whether anything has changed.
- `findings`: why a value cannot be static, with the message of each reason.
- `portable`: statics as JSON that means the same in another process, for checkpoints and digests.
- `reached`: what can be reached through a value, to find tracers and changes in place.
- `hash_nodes`: children that bring the statics into a treedef's hash, for ``many_statics``.

`_classes` makes keys in constructors and at flattens, `_trees` and `_compare` read them, and
`interop` gives them to the classes of other libraries.
"""
