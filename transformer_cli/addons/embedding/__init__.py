"""Vectors of lines and tokens, and the nearest lines of a file."""
