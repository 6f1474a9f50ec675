"""The grammars of the built-in corpora, of which transformer_cli/data/demo/ has the text: see `__main__.py`."""
