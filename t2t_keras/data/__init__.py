"""Raw text to a data directory, and a data directory to batches.

`sources` and `pair_files` yield pairs of texts, `mixture` those of several corpora, and
`pharaoh` reads word alignments. `datagen` turns them into a data
directory in stages, with `vocabulary`, `cleaning` (which pairs are dropped), `encoding`
(pairs to records, in worker processes), `records` (shards, index and raw texts) and
`manifest` (what a directory was made from); `files` writes atomically, `lock`
locks a directory, `wire_format` encodes protocol buffers, and `progress` shows how far
it is. `batch_plan` plans batches from the lengths of the records, and `pipeline` reads
them; `augmentation` changes them, if asked for.
"""
