"""testing/_plugin."""
