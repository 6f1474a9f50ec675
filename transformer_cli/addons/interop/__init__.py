"""Models of other programs: read, written, and compared with the original program."""

NEEDS = ("classification", "embedding", "tagging")  # whose models are written, too
