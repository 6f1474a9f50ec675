"""Trainings of published or measured recipes beside the curve of our own run."""
