"""What a function reads from outside its arguments, and what becomes of that.

Start with `bindings.bindings_of`: from the code that ran, which `observe` notes, it makes the list
of the `places` that this code reads. `fingerprint` compares what is there, by the `forms` of the
values; an `observation` has all this for one trace. `_jit` compares at each call.
"""
