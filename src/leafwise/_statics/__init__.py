"""Which values may be static, their canonical form, and the one key that represents them.

Start at `key.key_of`: it turns the static values of an instance into its `StaticKey`, the
aux_data that JAX compares. Below it:

- `fold`: turns values into tokens under a policy: `form` for keys, with a table of what "the same
  value" means for each type, and `content` for functions that are compared by content, with
  `Guards` that check fast whether anything has changed.
- `account`: what is kept of a value to see later which part of it has changed.
- `findings`: why a value cannot be static, with the message of each reason.
- `portable`: statics as JSON that is valid in other processes, for checkpoints and digests.
- `reached`: what can be reached through a value, to find tracers and changes in place.
- `hash_nodes`: children that add the statics to a treedef's hash, for ``many_statics``.

`_classes` makes keys in constructors and when flattening, `_trees` and `_compare` read them, and
`interop` gives them to the classes of other libraries.
"""
