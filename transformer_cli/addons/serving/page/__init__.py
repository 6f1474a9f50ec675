"""The web page of `tfm serve`: one file that sends requests to the server it came from, and to no other."""
