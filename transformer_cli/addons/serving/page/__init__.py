"""The web page of `tfm serve`: one file that speaks to the server it came from, and to no other."""
