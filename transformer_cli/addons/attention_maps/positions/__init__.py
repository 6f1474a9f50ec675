"""Position encodings: their values and how similar they are, as a page, pictures and JSON."""
