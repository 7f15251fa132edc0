"""Files: `atomic` writing and locks, and what is in them.

`json_files` has JSON with checksums, `text_files` lines of text, `config_files` TOML
and YAML that users write.
"""
