"""Raw text to a data directory, and a data directory to batches.

`text_files` reads compressed files and lines of UTF-8, `pair_files` files of pairs, and
`lines` refuses what is not text. `sources` yields pairs of texts, `pharaoh` reads word
alignments. `datagen` turns the pairs into a data directory in stages, with
`vocabulary`, `encoding` (cleaning, and pairs to records, in worker processes),
`records` (shards, index and raw texts) and `manifest` (what a directory was made from).
`files` has atomic writes, locks and progress messages; `schema` has the types of the
fields in JSON files; `plain_path` gives TensorFlow paths without wildcards.
`batch_plan` plans batches from the lengths of the records, and `pipeline` reads them;
`augmentation` changes them, if asked for.
"""
