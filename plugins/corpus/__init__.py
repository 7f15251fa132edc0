"""Corpora: their inspection, further file formats, and the archives of WMT.

- `command` is `t2t inspect`. `inspection` reads the splits, learns from a sample what
  is normal, compares all pairs with it (`measurements`) and reports `findings`.
  `inspection_page` shows the faulty pairs, and `cleaned_copy` repairs or drops them, as
  a recipe says.
- `tables` has the formats CSV, JSON lines and Parquet, `xml_pairs` TMX and XLIFF.
- `wmt` has problems whose data are in `archives`.
"""
