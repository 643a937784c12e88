"""_display."""
