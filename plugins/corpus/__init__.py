"""Corpora: their inspection, further file formats, and the archives of WMT.

- `inspecting` is the command `t2t inspect`. `inspection` reads the splits and learns
  the `norm` from a sample, brought into one direction (`directions`, by `trigrams`);
  `split_inspection` compares all pairs with it (`measurements`, `shifts`) and reports
  `findings`, also `mixed_directions`; `split_statistics` describes a
  split, and `inspection_page` writes HTML with `faulty_pairs`. A `recipe` says what
  becomes of them, and `cleaned_copy` applies it. `counted_pairs` reports progress, and
  `decoded_examples` reads a data directory.
- `formats` has the formats `tmx` and `xliff` (with `xml_units` and `xml_texts`),
  `json_lines`, `csv_table` and `parquet_table`; `language_codes` finds their languages.
- `wmt` has problems whose data are in `archives`.
"""
