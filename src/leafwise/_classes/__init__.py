"""`leafwise.pytree` and `leafwise.register`: from a class to instances with a sound key.

Start at `pytree.decorate`, which goes through the files in this order:

- `fields` and `options`: declaring a field, and converting, freezing and checking its value;
  `annotations`: reading its annotation.
- `spec`: class and options, resolved once into a `ClassSpec`, which everything later reads.
- `codegen`: the source of ``__init__``, flatten, unflatten and static properties. `construct`
  finishes a construction; `instance` attaches constructors and the other methods.
- `registry`: registration with JAX, and `spec_of`, which looks up the spec of a class.

`foreign` is for instances that another library flattens: the equinox modules of `interop`.
All wings above read specs through `registry`.
"""
