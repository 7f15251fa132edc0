"""Evaluation of a model on held-out data.

`evaluator` computes the loss of one checkpoint on a split, and decodes and scores it;
`validation` does so at intervals during training and keeps the best checkpoint;
`follow` does so for every checkpoint of a run, during training or afterwards.
`significance` tests whether the scores of two systems differ by more than chance.
"""
