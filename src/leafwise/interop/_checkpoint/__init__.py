"""interop/_checkpoint."""
