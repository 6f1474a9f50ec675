"""Translation scores with the signatures that make them comparable."""
