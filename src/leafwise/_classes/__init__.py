"""_classes."""
