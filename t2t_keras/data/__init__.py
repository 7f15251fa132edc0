"""Raw text to vocabulary and sharded TFRecords, and TFRecords to batches.

`sources` and `treebank` yield pairs of texts. `datagen` turns them into a data
directory with the help of `vocabulary`, `encoding`, `example`, `shuffle` (the global
order in bounded memory), `records` (TFRecords and the index over them), `manifest`
(what a directory holds), `workers`, `files` and `progress`. `batching` plans batches by
length, and `pipeline` reads them.
"""
