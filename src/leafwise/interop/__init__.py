"""leafwise and the libraries around it: each module here needs the one that it is named after.

- `equinox`: an `equinox.Module` with leafwise's key.
- `flax`: pytree classes in state dicts and as data of `flax.nnx` modules.
- `chex`: its assertions as checks of fields.
- `orbax`, `safetensors`: checkpoints. Both write what `_checkpoint` makes of a tree.
- `treescope`: what it shows.

Users import these modules, so files that are not public have an underscore. Nothing in leafwise
imports them but `leafwise._classes.instance`, which loads `treescope` when treescope asks it.
"""
