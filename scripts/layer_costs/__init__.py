"""Time and memory of the layers in table 1 of the paper: see `__main__.py`."""
