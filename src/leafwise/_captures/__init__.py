"""_captures."""
