"""Text in which an encoder fills in what is masked, from both sides."""

NEEDS = ("embedding", "language_models", "pages")
