"""Raw text to a data directory, and a data directory to batches.

`sources`, `pair_files` and `archives` yield pairs of texts, `mixture` those of several
corpora; `inspection` looks for faults in them. `datagen` turns them into a data
directory in stages, with `vocabulary`, `cleaning` (which pairs are dropped), `encoding`
(pairs to records, in worker processes), `records` (shards, index and raw texts) and
`manifest` (what a directory was made from); `files` writes atomically, and `progress`
shows how far it is. `batch_plan` plans batches from the lengths of the records, and
`pipeline` reads them; `augmentation` changes them, if asked for.
"""
