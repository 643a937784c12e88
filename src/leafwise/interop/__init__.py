"""Support for other libraries: each module here needs the one that it is named after.

- `equinox`: an `equinox.Module` with leafwise's key.
- `flax`: pytree classes in state dicts and as data of `flax.nnx` modules.
- `chex`: its assertions as checks of fields.
- `orbax`, `safetensors`: checkpoints. Both write what `_checkpoint` makes from a tree.
- `treescope`: how it shows instances.

Users import these modules, so private files have an underscore. Nothing in leafwise imports them
except `leafwise._classes.instance`, which loads `treescope` when treescope calls it.
"""
