"""Reading and writing of files.

`atomic` writes files as a whole and locks directories. `json_files` has JSON with
checksums, `text_files` lines of text, `config_files` TOML and YAML that users write.
`download` fetches published files.
"""
