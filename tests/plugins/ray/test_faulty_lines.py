"""Lines of which some are faulty; the others are those of `data.lines`."""

import gzip

from t2t_keras.files import text_files as strict_lines
from t2t_keras.plugins.ray import faulty_lines
from t2t_keras.plugins.ray.faulty_lines import CheckedFile, CheckedLine


def test_faulty_lines_do_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(faulty_lines, "LONGEST_LINE", 30)
    path = tmp_path / "crawl.gz"
    long = b"x" * 100
    rows = [b"\xef\xbb\xbffirst\r", b"\xff broken", b"", long, "\u2028ok".encode()]
    path.write_bytes(gzip.compress(b"\n".join(rows)))
    file = CheckedFile(path)
    assert list(file.lines()) == [
        CheckedLine("first"),
        CheckedLine("", "byte 0xff is not valid UTF-8"),
        CheckedLine(""),
        CheckedLine("", "more than 30 bytes"),
        CheckedLine("\u2028ok"),
    ]
    assert file.position == file.size


def test_intact_lines_match_other_commands(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("\ufeffone\r\n\n two\u0085three \nfour".encode())
    texts = [line.text for line in CheckedFile(path).lines()]
    assert texts == list(strict_lines.read_lines(path))
