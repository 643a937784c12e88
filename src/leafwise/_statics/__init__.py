"""_statics."""
