"""HTML pages of one file: what they share."""
