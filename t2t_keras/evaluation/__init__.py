"""How good a model is on held-out data.

`evaluator` computes the loss on a split and decodes and scores it, for one checkpoint;
`validation` does so again and again during training and keeps the best checkpoint;
`follow` does so for every checkpoint of a run, as training goes on or afterwards.
"""
