"""Constituency parsing as translation: bracketed trees as training text, their linear form, and F1 of brackets."""
