"""`leafwise.pytree` and `leafwise.register`: from a class to instances with a sound key.

Start at `pytree.decorate`, which goes through the files in this order:

- `fields` and `options`: how a field is declared, and what that makes of a value;
  `annotations`: what its annotation says.
- `spec`: class and options, resolved once into a `ClassSpec`, which all the rest reads.
- `codegen`: the source of ``__init__``, flatten, unflatten and static properties. `construct`
  ends a construction; `instance` attaches constructors, and has the other methods.
- `registry`: registration with JAX, and `spec_of`, which finds the spec of a class again.

`foreign` is for instances that another library flattens: the equinox modules of `interop`.
All wings above read specs through `registry`.
"""
