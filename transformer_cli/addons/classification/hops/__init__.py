"""The page of `tfm classify --html`: what each hop of a pooling reads."""
