"""Evaluation of a model on held-out data.

`evaluator` computes the loss of a model on a split, and decodes and scores it. `bleu`
has BLEU by sacreBLEU and by the paper's pipeline, chrF and TER; `tokenization` chooses
sacreBLEU's tokenization for a language, and `moses` has the scripts of that pipeline.
"""
