"""Exporters, one module each."""
