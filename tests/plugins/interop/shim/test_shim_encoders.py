"""Vocabularies of a tensor2tensor usr_dir, which equal tensor2tensor's own files."""

import gzip
import hashlib
import io
import os
import random
import tarfile

import pytest
from helpers.errors import refused

from t2t_keras.data.datagen import generate
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.plugins.interop import shim
from t2t_keras.plugins.interop.shim import encoders, files, problems, translate
from t2t_keras.plugins.interop.shim.ported_problem import port_problem
from t2t_keras.text.tokenizer import load_tokenizer

UNEQUAL = "is not tensor2tensor's"


@pytest.fixture(autouse=True)
def say_again():
    shim.say_once.cache_clear()


def text(number):
    """A text with words, signs, and characters of two scripts."""
    word = "quince" if number % 2 else "plum"
    sign = "!" * (number % 4)
    letter = chr(0x3B1 + number % 7)
    return (
        f"{word}{number**3 % 9973} {number * number % 97}{sign} {letter}_{number % 5}"
    )


def pair(number):
    return {"inputs": text(number), "targets": f" {text(7 * number).upper()} "}


def fruit_problems(problems, translate):
    """Problems by name, from these modules of tensor2tensor or of this package."""

    class Halves(problems.Text2TextProblem):
        approx_vocab_size = 120
        is_generate_per_split = False
        dataset_splits = (
            {"split": "train", "shards": 1},
            {"split": "eval", "shards": 1},
        )

        def generate_samples(self, data_dir, tmp_dir, dataset_split):
            return map(pair, range(200))  # "quince" is in each second one

    class EachSplit(Halves):
        is_generate_per_split = True

        def generate_samples(self, data_dir, tmp_dir, dataset_split):
            numbers = range(150) if dataset_split == "train" else range(900, 950)
            return map(pair, numbers)

    class FirstSamples(Halves):
        max_samples_for_vocab = 23

    class NoLimit(Halves):
        max_samples_for_vocab = 0

    class ShortPieces(Halves):
        max_subtoken_length = 4

    class Drawn(FirstSamples):
        def generate_samples(self, data_dir, tmp_dir, dataset_split):
            for _ in range(200):
                yield pair(int(1000 * random.random()))

    class Prefixed(Halves):
        inputs_prefix = "translate: "

    class Archived(translate.TranslateProblem):
        approx_vocab_size = 120

        def source_data_files(self, dataset_split):
            return [
                ["http://localhost/a.tgz", ("d/a.en", "d/a.de")],
                ["http://localhost/b.tgz", ("b.en.gz", "b.de")],
            ]

    problems = (Halves, EachSplit, FirstSamples, NoLimit, ShortPieces, Drawn, Prefixed)
    return {cls.__name__: cls for cls in (*problems, Archived)}


def write_archives(directory):
    """Writes the archives of `Archived`."""
    lines = [text(number) for number in range(300)]
    contents = {
        "a": {"d/a.en": "\n".join(lines[:90]), "d/a.de": "\n".join(lines[90:180])},
        "b": {"b.en.gz": "\r\n".join(lines), "b.de": "\ufeff" + "\n".join(lines)},
    }
    for name, members in contents.items():
        with tarfile.open(directory / f"{name}.tgz", "w:gz") as tar:
            for member, content in members.items():
                data = content.encode()
                if member.endswith(".gz"):
                    data = gzip.compress(data)
                info = tarfile.TarInfo(member)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def made(cls, name, data_dir, tmp_dir, **changes):
    """Generates the data of a problem, and returns their manifest."""
    problem = port_problem(cls()).replace(name=name, **changes)
    problem = problem.with_flags(problem.flags(tmp_dir=str(tmp_dir)))
    return generate(problem, data_dir, workers=1)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


# The beginning of the SHA-256 of the file that tensor2tensor 1.15.7 writes in
# `get_or_create_vocab` of these problems, after its t2t-datagen has set its seed.
RECORDED = {
    "Halves": "7cf68d7e7a186d1f",
    "EachSplit": "62d69192876d4be7",
    "FirstSamples": "ceef25b899850a97",
    "NoLimit": "7cf68d7e7a186d1f",
    "ShortPieces": "7e645c505f902203",
    "Drawn": "14ac29212d6e6f58",
    "Prefixed": "7cf68d7e7a186d1f",
    "Archived": "6a84cc52c06b09c1",
}
# The same of its `get_or_generate_vocab` for the two files of one archive.
RECORDED_SIDES = ("6b455f15bb98b71f", "067f45233cb4c57d")


@pytest.mark.parametrize("name", RECORDED)
def test_a_vocabulary_is_the_file_of_tensor2tensor(name, tmp_path, capsys):
    cls = fruit_problems(problems, translate)[name]
    cls.name = name.lower()
    vocab_file = f"vocab.{cls.name}.120.subwords"
    write_archives(tmp_path)
    manifest = made(cls, cls.name, tmp_path / "data", tmp_path)
    assert set(manifest.vocab_files.values()) == {vocab_file}
    assert digest(tmp_path / "data" / vocab_file) == RECORDED[name]
    messages = capsys.readouterr().err
    assert UNEQUAL not in messages and "has no effect" not in messages
    # The same file again, or in another directory, and with the size as a flag.
    other = type("Other", (cls,), {"approx_vocab_size": 999})
    made(other, cls.name, tmp_path / "more", tmp_path, vocab_size=120)
    assert digest(tmp_path / "more" / vocab_file) == RECORDED[name]


def test_other_training_files_have_their_own_vocabulary(tmp_path):
    for side in ("en", "de"):
        (tmp_path / f"a.{side}").write_text("walnut\n" * 40)
    cls = fruit_problems(problems, translate)["Halves"]
    files = ParallelFiles(tmp_path / "a.en", tmp_path / "a.de")
    sources = {"train": files}
    manifest = made(cls, "halves", tmp_path / "data", tmp_path, sources=sources)
    path = tmp_path / "data" / manifest.vocab_files["source"]
    pieces = load_tokenizer(path).pieces
    assert "walnut_" in pieces and "q" not in pieces


# The lines for vocabularies.


def written(tmp_path, name, lines, end="\n"):
    (tmp_path / name).write_bytes(end.join(lines).encode())
    return name


def test_lines_are_taken_at_equal_distances_until_the_budget_is_used(tmp_path):
    """By hand: every (size / budget / 2 + 1)-th line, of each file for itself."""
    long = [f"line {number:02}" for number in range(20)]  # 159 bytes
    short = ["a", " b ", "", "c"]
    names = [written(tmp_path, "long", long), written(tmp_path, "short", short)]
    lines = files.generate_lines_for_vocab

    # 159 / 20 / 2 = 3.9: every 4th line; after 3 lines of 7 characters nothing is left.
    taken = lines(str(tmp_path), [["x.tgz", names]], file_byte_budget=20)
    assert list(taken) == ["line 03", "line 07", "line 11", "a", "b", "", "c"]
    # 159 / 160 / 2 < 1: every line.
    taken = lines(str(tmp_path), [["x.tgz", names[:1]]], file_byte_budget=160)
    assert list(taken) == long
    # The bytes count, also those of "\r": 178 / 89 / 2 = 1.
    windows = written(tmp_path, "windows", long, end="\r\n")
    taken = lines(str(tmp_path), [["x.tgz", [windows]]], file_byte_budget=89)
    assert list(taken) == long[1::2]
    # tensor2tensor takes a byte order mark for text.
    marked = written(tmp_path, "marked", ["\ufeffa", "b"])
    assert list(lines(str(tmp_path), [["x.tgz", [marked]]])) == ["\ufeffa", "b"]


def test_a_vocabulary_of_each_side(tmp_path):
    """As tensor2tensor's translate_enzh has it."""
    write_archives(tmp_path)
    sources = [["http://localhost/a.tgz", ["d/a.en", "d/a.de"]]]

    class TwoSides(translate.TranslateProblem):
        name = "two_sides"

        def encoder(self, data_dir, tmp_dir, side):
            one_file = [[source[0], [source[1][side]]] for source in sources]
            return encoders.get_or_generate_vocab(
                data_dir, tmp_dir, f"vocab.side{side}", 100, one_file, 2000
            )

        def generate_encoded_samples(self, data_dir, tmp_dir, dataset_split):
            encoders = [self.encoder(data_dir, tmp_dir, side) for side in (0, 1)]
            path = translate.compile_data(tmp_dir, sources, "both")
            samples = files.text2text_txt_iterator(f"{path}.lang1", f"{path}.lang2")
            return problems.text2text_generate_encoded(samples, *encoders)

        def feature_encoders(self, data_dir):
            paths = [os.path.join(data_dir, f"vocab.side{side}") for side in (0, 1)]
            source, target = map(encoders.SubwordTextEncoder, paths)
            return {"inputs": source, "targets": target}

    data_dir = tmp_path / "data"
    manifest = made(TwoSides, "two_sides", data_dir, tmp_path)
    assert not manifest.shared_vocab
    for side, name in enumerate(("source", "target")):
        assert digest(data_dir / f"vocab.side{side}") == RECORDED_SIDES[side]
        assert digest(data_dir / manifest.vocab_files[name]) == RECORDED_SIDES[side]


def test_a_file_that_is_not_there(tmp_path):
    write_archives(tmp_path)
    dataset = ["a.tgz", ["d/a.fr"]]
    lines = files.generate_lines_for_vocab(str(tmp_path), [dataset])
    refused(r"a\.tgz has no member d/a\.fr", list, lines)


def test_a_vocabulary_without_a_directory_is_not_written(tmp_path):
    texts = [text(number) for number in range(50)]
    inner = encoders.get_or_generate_vocab_inner
    encoder = inner(None, "vocab", 100, iter(texts))
    stored = inner(str(tmp_path), "vocab", 100, iter(texts))
    encoder.store_to_file(str(tmp_path / "same"))
    assert (tmp_path / "same").read_bytes() == (tmp_path / "vocab").read_bytes()
    assert stored.filename == str(tmp_path / "vocab") and encoder.filename is None
    assert encoder.encode("plum 3") == stored.encode("plum 3")


# Vocabularies that differ are named.


def test_what_is_unlike_tensor2tensor_is_said(tmp_path, capsys):
    def said(texts, tokens=()):
        reserved = [*encoders.RESERVED_TOKENS, *tokens]
        encoders.SubwordTextEncoder.build_from_generator(
            texts, 50, reserved_tokens=reserved
        )
        return capsys.readouterr().err

    assert said(["a b", "c"]).startswith("training vocab.subwords on 2 lines")
    assert UNEQUAL not in said(["a b", "c"])
    assert f"{UNEQUAL}: the reserved tokens <A>, <B> are one" in said(
        ["a"], ["<A>", "<B>"]
    )
    assert f"{UNEQUAL}: no piece has the newlines" in said(["a\nb"])

    # A file has the ids of its lines, if the unknown token is the third.
    for tokens, equal in {("<UNK>", "a", "b"): True, ("a", "b"): False}.items():
        (tmp_path / "words").write_text("\n".join(["<pad>", "<EOS>", *tokens, ""]))
        encoder = encoders.TokenTextEncoder(str(tmp_path / "words"))
        encoder.write(tmp_path / "vocab.tokens")
        notice = "the ids are not tensor2tensor's, since '<UNK>'"
        assert (notice not in capsys.readouterr().err) == equal
        ids = load_tokenizer(tmp_path / "vocab.tokens").encode("a b")
        assert (ids == [*encoder.encode("a b"), 1]) == equal
