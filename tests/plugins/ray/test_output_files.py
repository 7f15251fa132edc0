"""Which outputs of a folder are finished."""

import os
from pathlib import Path

import pytest

from t2t_keras.plugins.ray.output_files import OutputFolder


@pytest.mark.parametrize("change", ["nothing", "input", "time", "output", "gone"])
def test_an_output_is_written_again_if_it_or_an_input_has_changed(tmp_path, change):
    source = tmp_path / "a.en"
    output = tmp_path / "out" / "a.en"
    output.parent.mkdir()
    for path in (source, output):
        path.write_text("a\n")
    os.utime(source, ns=(0, 1_000))
    facts = OutputFolder(output.parent, {"beam_size": 4}).finish(
        [source], output, {"faulty": []}
    )
    if change == "input":
        source.write_text("longer\n")
        os.utime(source, ns=(0, 1_000))
    elif change == "time":
        source.write_text("b\n")
    elif change == "output":
        output.write_text("")  # as after a crash before it reached the disk
    elif change == "gone":
        output.unlink()
    folder = OutputFolder(Path(output.parent), {"beam_size": 4})
    expected = facts if change == "nothing" else None
    assert folder.facts_of([source], output) == expected
