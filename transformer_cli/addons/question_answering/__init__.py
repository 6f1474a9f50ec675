"""Answers to questions, as spans of a passage."""

NEEDS = ("classification", "embedding", "tagging")
