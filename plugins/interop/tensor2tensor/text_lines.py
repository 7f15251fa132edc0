"""Lines of text files, as tensor2tensor reads them."""

from collections.abc import Iterator

from t2t_keras.files.text_files import decoded_lines, open_binary, readable


def txt_line_iterator(txt_path: str) -> Iterator[str]:
    """Yields the lines of a file, without surrounding white space."""
    with readable(txt_path), open_binary(txt_path) as file:
        for line in decoded_lines(file, txt_path):
            yield line.strip()
