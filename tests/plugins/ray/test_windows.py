"""Windows and batches: every line once, in an order from which outputs are written."""

import random

from t2t_keras.cli import translation as chunk_limits
from t2t_keras.plugins.ray import windows as planning
from t2t_keras.plugins.ray.windows import (
    Line,
    batches_by_length,
    chunk_windows,
    whole_batch,
    windows,
)


def random_lines(count):
    generator = random.Random(1)
    lines = []
    for index in range(count):
        text = "x" * generator.randint(0, 300)
        fault = "broken" if generator.random() < 0.05 else ""
        lines.append(Line(index // 40, index % 40 + 1, (text,), fault))
    return lines


def test_each_intact_line_is_in_one_batch_of_similar_length(monkeypatch):
    monkeypatch.setattr(planning, "_MAX_LINES_OF_BATCH", 20)
    monkeypatch.setattr(planning, "_MAX_CHARACTERS_OF_BATCH", 3000)
    lines = random_lines(1000)
    read = list(windows(iter(lines), workers=2))
    assert [line for window in read for line in window.lines] == lines
    assert len(read) == 4  # of 2 workers x 8 batches x 20 lines
    for window in read:
        batches = batches_by_length(window, workers=2)
        sent = sorted(i for batch in batches for i in batch.indices)
        assert sent == [i for i, line in enumerate(window.lines) if not line.fault]
        ordered = []
        for batch in batches:
            lengths = [len(line.texts[0]) for line in batch.lines]
            assert sum(lengths) <= 3000 and len(lengths) <= 20
            ordered += lengths
        assert ordered == sorted(ordered, reverse=True)
    longest_batch = batches_by_length(read[0], workers=2)[0]
    assert len({line.file for line in longest_batch.lines}) > 1


def test_windows_of_samples_are_the_chunks_of_translate(monkeypatch):
    monkeypatch.setattr(planning, "MAX_LINES", 15)
    monkeypatch.setattr(planning, "MAX_CHARACTERS", 1500)
    monkeypatch.setattr(chunk_limits, "MAX_LINES", 15)
    monkeypatch.setattr(chunk_limits, "MAX_CHARACTERS", 1500)
    lines = [line._replace(fault="") for line in random_lines(100)]
    expected = []
    for file in range(3):
        texts = [line.texts[0] for line in lines if line.file == file]
        expected += chunk_limits.chunks(iter(texts), False)
    read = list(chunk_windows(lines))
    for window, texts in zip(read, expected, strict=True):
        assert [line.texts[0] for line in window.lines] == texts
    offsets = [whole_batch(window)[0].seed_offset for window in read]
    assert offsets == [window.lines[0].number - 1 for window in read]


def test_halves_have_all_lines_of_a_batch():
    window = next(windows(random_lines(7), 1))
    batch = batches_by_length(window, 1)[0]
    indices = [half.indices for half in batch.halves()]
    assert indices[0] + indices[1] == batch.indices
    assert len(indices) == 2 and all(indices)
