"""Corpora by their names in the index of mtdata: found there, downloaded once, and read as files of a corpus."""
