"""testing/_laws."""
