"""The same weights for other people's programs, and the proof that they say the same there."""
