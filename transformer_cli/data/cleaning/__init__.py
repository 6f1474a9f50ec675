"""Cleaning of training text: filters that drop pairs that are no translations, and repair what can be repaired.

Dev and test sets are never cleaned; where they are held out of the training text, that is done afterwards.
"""
