"""Two systems or more on one test set: which is better, by how much, where, and whether by chance."""

NEEDS = ("pages",)
