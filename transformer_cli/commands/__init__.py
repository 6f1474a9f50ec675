"""One thin module per command: each wires the rooms together and holds no algorithm."""
