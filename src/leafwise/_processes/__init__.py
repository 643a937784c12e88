"""What all processes of a program must agree on, and messages on how they differ.

`agreement` asks every process, through the texts that `leafwise._jax.processes` exchanges.

Used by `_trees`, `_programs`, `_jit`, `interop` and `cli`.
"""
