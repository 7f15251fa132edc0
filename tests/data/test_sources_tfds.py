"""The paper's problems through tensorflow-datasets, prepared by its own machinery."""

import dataclasses

import pytest
import tensorflow_datasets as tfds
from helpers.command_line import run, run_json
from helpers.small_corpus import decoded

from t2t_keras import registry
from t2t_keras.data.manifest import Manifest

LANGUAGES = ("de", "fr")
SIZES = {"train": 300, "validation": 20, "test": 30}
DIRTY = {  # number in `train` -> what the web has
    5: ("Cookies", "Cookies"),
    6: ("It\x92s here.", "Hier ist es."),
    7: ("+49 (0)30 / 12-34", "Telefon 030"),
    8: ("see www." + "x" * 120, "siehe dort"),
    9: ("yes", "ja " * 20),
    10: ("Yes, sentence 3 of train.", "Ja, sentence 3 of train."),  # again
}


def pairs(split: str, language: str) -> list[tuple[str, str]]:
    """English and a word of the other language before it."""
    word = {"de": "Ja", "fr": "Oui"}[language]
    texts = [f"sentence {i} of {split}." for i in range(SIZES[split])]
    made = [(f"Yes, {text}", f"{word}, {text}") for text in texts]
    for index, dirty in DIRTY.items() if split == "train" else ():
        made[index] = dirty
    return made


class Wmt14Translate(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A small dataset of the name, configurations, features and splits of WMT 2014."""

    BUILDER_CONFIGS = [  # noqa: RUF012
        tfds.core.BuilderConfig(name=f"{language}-en", version="1.0.0")
        for language in LANGUAGES
    ]

    @property
    def language(self) -> str:
        return self.builder_config.name.partition("-")[0]

    def _info(self):
        features = tfds.features.Translation(languages=(self.language, "en"))
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in SIZES}

    def _generate_examples(self, split):
        for i, (english, foreign) in enumerate(pairs(split, self.language)):
            yield i, {"en": english, self.language: foreign}


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("tfds")
    for language in LANGUAGES:
        Wmt14Translate(data_dir=path, config=f"{language}-en").download_and_prepare()
    return path


def prepared_in(path, problem):
    """The problem, with its datasets in a folder."""
    moved = {
        split: dataclasses.replace(source, data_dir=path)
        for split, source in problem.sources.items()
    }
    return problem.replace(sources=moved)


@pytest.mark.parametrize(
    ("language", "vocab_size", "flags"),
    [("de", 37_000, {}), ("fr", 32_000, {"ratio": 1, "duplicate": 0})],
)
def test_datagen(capfd, tmp_path, tfds_dir, language, vocab_size, flags, monkeypatch):
    problem = registry.problem(f"translate_en{language}")
    assert (problem.vocab_size, problem.shared_vocab) == (vocab_size, True)
    subsets = tfds.builder(problem.sources["dev"].name).subsets  # of the real one
    assert subsets["validation"] == ["newstest2013"]
    assert subsets["test"] == ["newstest2014"] and "europarl_v7" in subsets["train"]
    problem = prepared_in(tfds_dir, problem)
    monkeypatch.setattr(registry, "problem", lambda name: problem)
    argv = ("datagen", "--problem", problem.name, "--workers", 1)
    argv += ("--data_dir", tmp_path, "--vocab_size", 330)
    result = run_json(capfd, *argv)
    noise = dict.fromkeys(("identical", "control", "few_letters", "long_word"), 1)
    expected = {"empty": 0, "over_length": 0} | noise | flags
    assert result["dropped"] == expected
    num_examples = SIZES["train"] - sum(expected.values())
    assert result["examples"] == {"train": num_examples, "dev": 20, "test": 30}
    name = f"translate_en{language}"
    for split, stored in {"dev": "validation", "test": "test"}.items():
        texts = decoded(tmp_path, split, name)
        assert sorted(texts) == sorted(pairs(stored, language))
    manifest = Manifest.open(tmp_path, name)
    assert manifest.sources["dev"] == (
        f"tfds wmt14_translate/{language}-en/1.0.0 validation en {language}"
    )


@pytest.fixture
def datagen_offline(capfd, tmp_path, monkeypatch):
    """Returns the last line of `t2t datagen` on WMT 2014, which must be refused."""
    problem = prepared_in(tmp_path / "tfds", registry.problem("translate_enfr"))
    monkeypatch.setattr(registry, "problem", lambda name: problem)

    def refusal():
        argv = ("datagen", "--problem", "translate_enfr", "--workers", 1)
        assert run(*argv, "--data_dir", tmp_path / "data") == 2
        err = capfd.readouterr().err
        assert "Traceback" not in err
        return err.strip().splitlines()[-1]

    return refusal


def offline(*args, **kwargs):
    raise ConnectionError("Name or service not known")


def test_a_failed_download(datagen_offline, tmp_path, monkeypatch):
    for name in ("download", "download_and_extract"):
        monkeypatch.setattr(tfds.download.DownloadManager, name, offline)
    message = datagen_offline()
    assert "cannot download wmt14_translate/fr-en: Name or service not" in message
    target = tmp_path / "tfds" / "wmt14_translate" / "fr-en" / "1.0.0"
    assert f"fr-en/1.0.0 to {target}, or" in message
