"""Raw text to a data directory, and a data directory to batches.

- Texts: `text_files` opens compressed files, `lines` reads text, `pair_files` files of
  pairs, `pharaoh` word alignments.
- Sources of pairs: `sources`, `parallel_files`, `tfds_pairs`,
  `archive_format`; `mixture` combines corpora, also those of a
  `mixture_file`; `languages`.
- Data generation: `datagen` runs the stages of a `data_plan`, or of one `shard` of it:
  `count_pairs`, `train_vocabulary`, `encode_splits`, `write_shards`, `raw_texts`,
  `write_manifest`. `source_form` warns if sources are not preprocessed,
  `encoding` turns pairs into examples, `cleaning` and `duplicates` drop pairs,
  `token_links` has word alignments, `encoding_pool` uses `worker_processes`,
  `spill_files` shuffle.
- Data generation in `tasks` of other machines: `source_survey` counts pairs by byte
  ranges of text files (`line_positions`), so that any part of an `indexed_source` can
  be read; `drawing_tasks` and `encoding_tasks` read such parts.
- The data directory: `manifest` and `data_config` say what it was made from. It has
  `vocabulary_files` (with a `vocabulary_size`), and for each split `split_files` in the
  formats `tfrecord` and `example_proto`, and `index_files`; `sides` names both.
- Batches: `training_data` opens the examples of a training. `bucketing` chooses a
  `batch_plan`, a `bucket_plan`, a `static_shape_plan` or a `packed_plan`, whose
  `row_packing` puts several pairs into a row; `part_starts` has the offsets of buckets
  and rows. `pipeline` reads batches from the `record_index`, as `packed_rows` if need
  be, and `decoded_pairs` single records. `augmentation` and `guided_alignment`
  are optional.
- Files in general: `atomic_files`, `json_files` with the types of `schema`,
  `yaml_text`, `toml_text`, `log_files`, `checksums`, `locks`.
  `console` and `progress` write to standard error, on a terminal with a `spinner` or a
  `progress_bar`.
"""
