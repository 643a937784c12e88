"""_compare."""
