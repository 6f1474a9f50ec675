"""Models of other programs: read, written, and compared with the original program."""
