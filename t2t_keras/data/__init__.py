"""Raw text to vocabulary and sharded TFRecords, and TFRecords to batches.

`sources` yields pairs of texts. `datagen` turns them into a data
directory, by one `job` or several, with the help of `vocabulary`, `cleaning` and
`duplicates` (what is dropped as noise), `task` and `share` (the work of several
machines), `encoding`, `example`, `tfrecord`, `shuffle` (the global order in
bounded memory), `records` (shards and the index over them), `manifest` (what a
directory holds), `workers`, `files` and `progress`. `batching` plans batches by length,
`buckets` by tensor2tensor's rule, and `pipeline` reads them.
"""
