"""Raw text to a data directory, and a data directory to batches.

- Sources of pairs: `sources` has text files, files of pairs and tensorflow-datasets;
  `mixture` combines corpora; `held_out` takes dev and test out of train.
- Data generation: `datagen` runs the stages: `count_pairs`, `vocabulary`,
  `encode_splits` with the `encoding` of a chunk and the filters of `cleaning`,
  `write_shards`, `raw_texts`, `write_manifest`. On other machines it runs `tasks`:
  `source_survey` counts pairs by byte ranges of text files (`line_positions`), so that
  `drawing_tasks` and `encoding_tasks` can read any part of an `indexed_source`.
- The data directory: `manifest` says what it was made from; each split has `tfrecord`
  files and a `record_index`.
- Batches: `training_data` opens the examples of a training and chooses a `batch_plan`
  or a `packed_plan`; `pipeline` reads its batches.
"""
