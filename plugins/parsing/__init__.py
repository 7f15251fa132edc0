"""A parser: one source token per word, cross-attention biased to the next word."""
