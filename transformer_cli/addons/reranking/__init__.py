"""`tfm rerank`: the best of each n-best list by a weighted sum of features, whose weights are tuned on a dev set."""
