"""The networks, in the order of the paper, and the model file that carries them."""
