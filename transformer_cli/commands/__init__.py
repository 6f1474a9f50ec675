"""One thin module per command: each wires the packages together and holds no algorithm."""
