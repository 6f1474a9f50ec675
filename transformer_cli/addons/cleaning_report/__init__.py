"""The page of `tfm prepare --report`: what the filters of training text did, with examples."""

NEEDS = ("pages",)
