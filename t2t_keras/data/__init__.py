"""Raw text to a data directory, and a data directory to batches.

- Sources of pairs: `sources` has text files, files of pairs and tensorflow-datasets;
  `mixture` combines corpora; `held_out` takes dev and test out of train.
- Data generation: `datagen` runs the stages. It counts the pairs; `vocabulary` trains;
  `encode_splits` encodes by chunks with `encoding` and the filters of `cleaning`;
  `write_shards`, `raw_texts` and `write_manifest` write the files.
- The data directory: `manifest` says what it was made from; each split has `tfrecord`
  files and a `record_index`.
- Batches: `training_data` opens the examples of a training and chooses a `batch_plan`
  or a `packed_plan`; `pipeline` reads its batches.
"""
