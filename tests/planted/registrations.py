"""What registers a class of another module; a new process has no reason to import it."""

from jax.tree_util import register_pytree_with_keys

from .unregistered import RegisteredElsewhere

register_pytree_with_keys(
    RegisteredElsewhere,
    RegisteredElsewhere.tree_flatten_with_keys,
    RegisteredElsewhere.tree_unflatten,
    RegisteredElsewhere.tree_flatten,
)
