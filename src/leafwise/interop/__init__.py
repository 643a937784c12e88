"""Other libraries: each module here needs the one that it is named after."""
