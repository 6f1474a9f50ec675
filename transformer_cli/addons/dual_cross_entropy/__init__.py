"""The filter dual_cross_entropy of data.clean: pairs that translation models of both directions find unlikely."""
