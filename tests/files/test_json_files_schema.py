"""The types of the fields in the JSON files of data, runs and exports."""

import copy
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, Literal

import pytest
from helpers.errors import refused
from helpers.small_run import HPARAMS

from t2t_keras import registry
from t2t_keras.checking import Count
from t2t_keras.data.manifest import CorpusRecord, Manifest
from t2t_keras.data.training_data import training_index
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.exporting.saved_model import SavedModelSettings
from t2t_keras.exporting.settings import SETTINGS
from t2t_keras.files.json_files import FileName, from_fields, write_json
from t2t_keras.hparam import HParams
from t2t_keras.run.config import RunConfig, config_for
from t2t_keras.run.directory import RunDirectory

FILE = Path("x.json")


@dataclasses.dataclass
class Example:
    """All that a field can be."""

    quantity: Count
    share: float
    name: FileName
    flag: bool = False
    split: Literal["train", "dev"] = "train"
    pair: tuple[str, str] | None = None
    names: tuple[str, ...] = ()
    counts: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    pairs: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    by_name: dict[str, list[tuple[int, ...]]] = dataclasses.field(default_factory=dict)
    corpus: CorpusRecord | None = None
    anything: Any = None


FIELDS = {"quantity": 1, "share": 1, "name": "vocab"}


def test_fields_have_their_types():
    lists = {"pair": ["a", "b"], "names": ["c"], "counts": {"d": [1]}, "anything": {}}
    example = from_fields(Example, FIELDS | lists, FILE)
    assert (example.pair, example.names) == (("a", "b"), ("c",))
    assert example.counts == {"d": [1]} and example.split == "train"
    # Lists within lists become tuples as well.
    pairs = [["a", "b"], ["c", "d"]]
    lists = {"pairs": pairs, "by_name": {"e": [[1], [], [2, 3]]}}
    example = from_fields(Example, FIELDS | lists, FILE)
    assert example.pairs == [("a", "b"), ("c", "d")]
    assert example.by_name == {"e": [(1,), (), (2, 3)]}
    assert pairs == [["a", "b"], ["c", "d"]]  # the argument is not changed


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"quantity": [1]},
            r"'quantity' must be an integer, at least 0, not \[1\]; res",
        ),
        ({"name": "../vocab"}, "'name' must be the name of a file in its directory"),
        ({"name": ""}, "'name' must be the name of a file in its directory"),
        ({"name": "a\0"}, r"'name' must be text without U\+0000"),
        ({"name": "\ud800"}, "'name' must be text without"),
        ({"pair": ["a"]}, r"'pair' must be \(text, text\) or null, not \['a'\]"),
        ({"counts": {"d": [1, "2"]}}, r"'counts.d\[1\]' must be an integer"),
        ({"corpus": {"pairs": 1}}, "'corpus' must be an object with pairs, ex"),
        ({"shar": 1}, "there is no field 'shar'; did you mean 'share'"),
    ],
)
def test_an_error_says_what_a_field_must_be(fields, message):
    message = f"^x.json: .*{message}"
    refused(message, from_fields, Example, FIELDS | fields, FILE)
    refused("the field 'share' is missing", from_fields, Example, {"quantity": 1}, FILE)


# Every value of each file, replaced by others.

WRONG: list[Any] = [None, 5, -1, 0, 1.5, float("nan"), float("inf"), 10**30, True]
WRONG += ["x", "", "../../../etc/passwd", "\0", "\ud800", [], ["x"], [5], [[]], {}]
WRONG += [{"a": 1}, {"train": 1}, {"source": "x"}]


def changed(fields: dict[str, object], depth: int = 3):
    """Yields copies in which one value is another, or is missing, or is new."""
    yield {**fields, "new": 1}
    for key, value in fields.items():
        yield {name: field for name, field in fields.items() if name != key}
        for wrong_name in WRONG:
            yield {**fields, key: copy.deepcopy(wrong_name)}
        if isinstance(value, dict) and depth:
            for inner in changed(value, depth - 1):
                yield {**fields, key: inner}


def use_each(path: Path, use) -> None:
    """Asserts that a file with any wrong value is used, or refused in one sentence."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    fields.pop("sha256", None)
    use()
    accepted = count = 0
    for edited in changed(fields):
        write_json(path, edited, with_checksum=True)
        count += 1
        try:
            use()
            accepted += 1
        except UserError as error:
            assert "\n" not in str(error)
    assert count > 100 and accepted < count * 0.7


def test_a_manifest(complete, tmp_path):
    from helpers.small_corpus import PROBLEM

    directory = shutil.copytree(complete, tmp_path / "data")
    path = Manifest.path(directory, "small")
    fields = json.loads(path.read_text())
    share = {"pairs": 290, "examples": 286, "share": 1.0}
    write_json(path, fields | {"corpora": {"dev": {"a": share}}}, with_checksum=True)

    def use():
        manifest = Manifest.open(directory, "small")
        config_for(PROBLEM, "tiny", directory, 0)
        manifest.open_index(directory, "dev")
        training_index(directory, PROBLEM)

    use_each(path, use)


def test_a_run(data_dir, tmp_path):
    config = config_for(registry.problem("translate_text"), "tiny", data_dir, 0)
    run = RunDirectory.create(tmp_path, config, HPARAMS)

    def use():
        opened = RunDirectory(tmp_path)
        assert opened.problem.name
        opened.config.sizes_of(opened.tokenizers)
        opened.config.micro_batches(1)
        opened.config.changes(config)

    use_each(tmp_path / "config.json", use)
    run.config.write(tmp_path)
    RunDirectory(tmp_path)


def test_hparams(tmp_path):
    path = tmp_path / "hparams.json"
    write_json(path, dataclasses.asdict(HPARAMS))
    fields = json.loads(path.read_text())
    count = 0
    for edited in changed(fields):
        path.write_text(json.dumps(edited))
        try:
            HParams.load(path)
        except UserError as error:
            count += 1
            assert str(path) in str(error) and "\n" not in str(error)
    assert count > 100


def test_an_export(tmp_path):
    settings = SavedModelSettings(
        **{"version": "1", "problem": "translate_text", "languages": ["en", "de"]},
        decoding=DecodingOptions(glossary=(("a", "b"),)).recorded(),
        **{"text_processor": "plain", "tags": [], "ids_only": False},
    )
    path = tmp_path / SETTINGS
    write_json(path, dataclasses.asdict(settings))

    def use():
        settings = SavedModelSettings.read(tmp_path)
        DecodingOptions.of_recorded(settings.decoding, path)

    use_each(path, use)


# Edits by hand


def test_an_edited_configuration_is_refused_until_its_checksum_is_removed(
    data_dir, tmp_path
):
    config = config_for(registry.problem("translate_text"), "tiny", data_dir, 0)
    RunDirectory.create(tmp_path, config, HPARAMS)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 5'))
    message = "config.json has been damaged or edited: .*remove that field if you have"
    refused(message, RunConfig.read, tmp_path)
    lines = path.read_text().splitlines()
    without_checksum = "\n".join(
        line for line in lines if not line.startswith('  "sha256"')
    )
    path.write_text(without_checksum.replace(",\n}", "\n}"))
    assert RunConfig.read(tmp_path).seed == 5


def test_paths_may_have_any_bytes(data_dir, tmp_path):
    config = config_for(registry.problem("translate_text"), "tiny", data_dir, 0)
    dataclasses.replace(config, data_dir="/dü", usr_dir="/\udcff").write(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert stored["data_dir"] == "/dü"
    restored = RunConfig.read(tmp_path)
    assert (restored.data_dir, restored.usr_dir) == ("/dü", "/\udcff")
