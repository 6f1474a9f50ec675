"""`tfm serve`: models behind HTTP, for people, for the clients of other servers, and for programs."""

NEEDS = ("attention_maps", "documents", "pages")
