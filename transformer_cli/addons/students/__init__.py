"""Small, fast models: lexical shortlists."""
