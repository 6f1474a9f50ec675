"""What tfm costs beside what the machine can do and beside rivals, measured in one process."""
