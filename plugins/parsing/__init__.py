"""A parser that reads words, each one token, and knows which word comes next."""
