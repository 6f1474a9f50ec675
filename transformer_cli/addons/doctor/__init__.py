"""`tfm doctor`: the text, the vocabulary, the memory, the time and the disk of a training run before it starts."""
