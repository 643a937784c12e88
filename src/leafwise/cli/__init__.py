"""`leafwise check`: which field change of a class retraces, seen on JAX itself."""
