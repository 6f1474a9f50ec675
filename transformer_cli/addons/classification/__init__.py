"""Classes of lines of text."""

NEEDS = ("embedding", "pages")
