"""Raw text to a data directory, and a data directory to batches.

- Sources of pairs: `sources` has text files, files of pairs and tensorflow-datasets;
  `mixture` combines corpora; `held_out` takes dev and test out of train.
- Data generation: `datagen` runs the stages: it counts the pairs, and goes on with
  `vocabulary`, `encode_splits`, which uses the `encoding` of a chunk and the filters of
  `cleaning`, `write_shards`, `raw_texts` and `write_manifest`.
- The data directory: `manifest` says what it was made from; each split has `tfrecord`
  files and a `record_index`.
- Batches: `training_data` opens the examples of a training and chooses a `batch_plan`
  or a `packed_plan`; `pipeline` reads its batches.
"""
