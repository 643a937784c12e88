"""_objects."""
