"""A parser with one source token per word and attention biased to the next word."""
