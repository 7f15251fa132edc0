"""Files are read as what they are: compressed files, formats, and texts."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import tracemalloc
import zipfile

import pyarrow
import pytest
import sentencepiece
from backports import zstd
from helpers.command_line import run_json, run_refused, standard_input
from helpers.errors import refused
from pyarrow import parquet

from t2t_keras.cli.lines import count_lines
from t2t_keras.cli.lines import read_lines as read_input
from t2t_keras.data.mixture import read_mixture
from t2t_keras.data.sources import PairFile, ParallelFiles, format_of
from t2t_keras.decoding.options import parse_forbidden, parse_glossary
from t2t_keras.errors import UserError
from t2t_keras.files.text_files import read_lines, read_text
from t2t_keras.plugins.corpus.archives import ArchivedPairs
from t2t_keras.text.tokenizer import load_tokenizer

PAIRS = [(f"the dog sees {n} cats", f"der Hund sieht {n} Katzen") for n in range(80)]
UNIT = (
    '<tu><tuv xml:lang="en-GB"><seg>{}</seg></tuv>'
    '<tuv xml:lang="de"><seg>{}</seg></tuv></tu>\n'
)
HEADER = '<tmx version="1.4"><header srclang="{}"/><body>\n'
XLIFF_1 = (
    '<?xml version="1.0"?>\n<!-- by a tool -->\n<xliff version="1.2"><file '
    'source-language="en" target-language="de-DE"><body>{}</body></file></xliff>'
)
UNIT_1 = "<trans-unit><source>{}<x/></source><target>{}</target></trans-unit>\n"
XLIFF_2 = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de">'
    "<file>{}</file></xliff>"
)
UNIT_2 = "<unit><segment><source>{}</source><target>{}</target></segment></unit>\n"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 802741\n"
POINTER = POINTER.format("0a" * 32)


def tmx(pairs=PAIRS, srclang="en", head="") -> str:
    units = "".join(UNIT.format(*pair) for pair in pairs)
    return f"{head}{HEADER.format(srclang)}{units}</body></tmx>\n"


def table_in_parquet(pairs, nested: bool) -> bytes:
    rows = [dict(zip(("en", "de"), pair, strict=True)) for pair in pairs]
    content = io.BytesIO()
    rows = [{"id": 1, "translation": row} for row in rows] if nested else rows
    parquet.write_table(pyarrow.Table.from_pylist(rows), content)
    return content.getvalue()


def lines_of(file_format, pairs=PAIRS) -> str:
    return "".join(file_format(source, target) + "\n" for source, target in pairs)


FILES = {  # name -> content
    "a.tmx": tmx(),
    "head.tmx": tmx(head='<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'),
    "wide.tmx": tmx(head='<?xml version="1.0" encoding="UTF-16"?>').encode("utf-16"),
    "a.xlf": XLIFF_1.format("".join(UNIT_1.format(*pair) for pair in PAIRS)),
    "a.xliff": XLIFF_2.format("".join(UNIT_2.format(*pair) for pair in PAIRS)),
    "a.ndjson": lines_of(lambda en, de: json.dumps({"en": en, "de": de})),
    "a.jsonl": lines_of(lambda a, b: json.dumps({"translation": {"en": a, "de": b}})),
    "a.tsv": lines_of(lambda source, target: f"{source}\t{target}"),
    "a.csv": "en,de\n" + lines_of(lambda source, target: f"{source},{target}"),
    "quoted.csv": "en,de\n" + lines_of(lambda source, target: f'"{source}","{target}"'),
    "a.parquet": table_in_parquet(PAIRS, nested=False),
    "hub": table_in_parquet(PAIRS, nested=True),  # its first bytes tell the format
}


def save(path, content: str | bytes):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", FILES)
def test_one_file_has_both_sides(tmp_path, capfd, name):
    path = save(tmp_path / name, FILES[name])
    files = ("--train_source", path, "--train_target", path)
    argv = ("datagen", "--problem", "translate_text", "--vocab_size", "320", *files)
    result = run_json(capfd, *argv, "--data_dir", tmp_path / "data", "--workers", "1")
    assert result["examples"] == {"train": 80}
    pairs = PairFile(path, ("en", "de"))
    assert list(pairs()) == PAIRS
    if name != "a.tsv":
        assert list(PairFile(path, ("de", "en"))()) == [pair[::-1] for pair in PAIRS]


@pytest.mark.parametrize("name", FILES)
def test_one_side_is_refused(tmp_path, name):
    path = save(tmp_path / name, FILES[name])
    message = refused("which has both sides of its pairs", list, read_lines(path))
    assert message.startswith(f"{path} is a") and f'pairs = "{path}"' in message
    needs_languages = not name.endswith(("tsv", "xlf", "xliff"))
    assert ("--languages" in message) == needs_languages


def test_the_flags_that_are_refused(tmp_path, capfd):
    path = save(tmp_path / "a.tmx", tmx())
    text = save(tmp_path / "b.txt", "x\n")
    data = ("datagen", "--problem", "translate_text", "--data_dir", tmp_path / "data")
    train_flags = ("--train_source", path, "--train_target")
    assert f"{path} is a translation memory" in run_refused(
        capfd, *data, *train_flags, text
    )
    unknown = save(tmp_path / "c.tmx", tmx(srclang="*all*"))
    argv = (*data, "--train_source", unknown, "--train_target", unknown)
    assert "such as --languages en-de" in run_refused(capfd, *argv)
    data = ("datagen", "--problem", "translate_text_rev", "--data_dir", tmp_path / "r")
    message = run_refused(capfd, *data, *train_flags, path)
    assert "in the direction of 'translate_text'" in message
    argv = (*data, *train_flags, path, "--languages", "de-en", "--vocab_size", "320")
    assert run_json(capfd, *argv, "--workers", "1")["examples"] == {"train": 80}


def zip_of(name: str, content: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def tar_of(name: str, content: bytes, mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


OTHERS = {
    "is a ZIP archive or an office document.*unzip {}": zip_of("a.en", "a\n" * 9),
    "is a tar archive.*tar -xf {}": tar_of("a.en", b"a\n"),
    "is a compressed file": b"\x5d\x00\x00\x80\x00abc",
    "is in UTF-32, .*iconv -f UTF-32 ": "gut\n".encode("utf-32"),
    "is in UTF-16, .*iconv -f UTF-16 ": "gut\n".encode("utf-16"),
    "is compressed twice": gzip.compress(gzip.compress(b"a\n")),
    "is a pointer of Git LFS.*git lfs pull": POINTER.encode(),
    "is a pointer of git-annex": b"/annex/objects/SHA256E-s10--00.txt\n",
}


@pytest.mark.parametrize("message", OTHERS)
def test_files_that_are_not_text_are_refused(tmp_path, message):
    path = save(tmp_path / "corpus.en", OTHERS[message])
    refused(f"{path} {message.format(path)}", list, read_lines(path))
    if "pointer" in message:
        return
    path = save(tmp_path / "corpus.gz", gzip.compress(OTHERS[message]))
    refused(f"{path} is", list, read_lines(path))


TEXTS = [
    "ORCHARDS ARE GREEN .\n",
    '"Hello", he said .\n' * 40,
    '{"intent": "open", "door": 1}\n' * 40,
    "total_sum = first_part(1)\n" * 40,
    "INSERT INTO fruit VALUES (1, 'plum');\n" * 40,
    "a\tb\n" * 40,
    "<!DOCTYPE html>\n<html>\n",
    "# One\n\n- two\n\n```sh\n",
    "1\n00:00:01,000 --> 00:00:02,000\n",
    "%PDF is not\nRar!\nBZh9\nPK\n",
    "a\rb\nc\n",
    "\x00" * 50 + "\n",
    "\n" * 70_000,
]


@pytest.mark.parametrize("content", TEXTS)
def test_text_is_text_whatever_it_looks_like(tmp_path, content):
    path = save(tmp_path / "a.en", content)
    assert list(read_lines(path)) == content.split("\n")[:-1]
    assert format_of(path) is None
    assert next(ParallelFiles(path, path)()) == (content.split("\n")[0],) * 2


COMPRESS = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}
COMPRESS |= {"zst": zstd.compress}


@pytest.mark.parametrize("compression", COMPRESS)
def test_compression_is_recognized_by_content(tmp_path, compression):
    text = "".join(f"{source}\n" for source, _ in PAIRS * 50)
    content = COMPRESS[compression](text.encode())
    for name in ("plain.txt", f"a.{compression}", "a.gz", "a.xz"):
        path = save(tmp_path / name, content)
        assert list(read_lines(path)) == text.split("\n")[:-1]
        assert count_lines(path) == 4000
    with standard_input(path):
        assert len(list(read_input(None))) == 4000
    table = save(tmp_path / f"a.tsv.{compression}", COMPRESS[compression](b"a\tb\n"))
    assert list(PairFile(table)()) == [("a", "b")]
    for name in (f"a.{compression}", "a.en"):
        path = save(tmp_path / name, content[: len(content) // 2])
        refused(f"{path} is not a complete", list, read_lines(path))
    if compression != "zst":  # which need not have a checksum
        damaged = bytearray(content)
        damaged[len(content) // 2] ^= 255
        path = save(tmp_path / "damaged", bytes(damaged))
        refused(f"{path} is not a complete compressed file", list, read_lines(path))
    path = save(tmp_path / f"text.{compression}", text.encode())
    refused(f"{path} does not begin as a", list, read_lines(path))
    empty = save(tmp_path / f"empty.{compression}", COMPRESS[compression](b""))
    assert list(read_lines(empty)) == []


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
@pytest.mark.parametrize("member", ["a.en", "a.en.gz", "a.en.bz2"])
def test_archives_of_any_compression(tmp_path, mode, member):
    compress = COMPRESS.get(member.rpartition(".")[2], bytes)
    content = tar_of(member, compress(b"one\ntwo\n"), mode)
    name = "a.tar" + mode[1:].replace(":", ".")
    save(tmp_path / name, content)
    pairs = ArchivedPairs(tmp_path, f"https://a.b/{name}", member, member)
    assert list(pairs()) == [("one", "one"), ("two", "two")]


# One reader of lines for small files.


def test_lists_begin_after_a_byte_order_mark(tmp_path):
    terms = "dog\tHund\u2028e\r\nman\x85\tMann\x0c\r\n\r\n"
    glossary = save(tmp_path / "terms.tsv", "\ufeff" + terms)
    assert parse_glossary(str(glossary)) == (("dog", "Hund\u2028e"), ("man", "Mann"))
    phrases = save(
        tmp_path / "phrases", "\ufeffHündin\nVieh\u2028stall\n\u200b\na\x85b"
    )
    expected = ("Hündin", "Vieh\u2028stall", "a\x85b")
    assert parse_forbidden(str(phrases)) == expected
    save(tmp_path / "a", "x\n")
    table = '\ufeff[[train]]\r\nsource = "a"\r\ntarget = "a"\r\n'
    mixture = read_mixture(save(tmp_path / "mixture.toml", table))
    assert list(mixture["train"]()) == [("x", "x")]
    for parse in (parse_glossary, parse_forbidden):
        path = save(tmp_path / "latin", "a\tb\nschön\tx\n".encode("latin-1"))
        refused(f"{path}, line 2: byte 0xf6 is not valid UTF-8", parse, str(path))
        save(path, POINTER)
        refused("is a pointer of Git LFS", parse, str(path))
        path = save(tmp_path / "terms.gz", gzip.compress(b"a\tb\n"))
        assert len(parse(str(path))) == 1
    path = save(tmp_path / "utf16", "the dog\n".encode("utf-16"))
    refused(f"forbidden: {path} is in UTF-16", parse_forbidden, str(path))
    path = save(tmp_path / "m.toml", "a = 'schön'".encode("latin-1"))
    refused(f"{path}, line 1: byte 0xf6", read_mixture, path)
    path = save(tmp_path / "large", b"a\n" * 5_000_001)
    refused(f"{path} has more than 10,000,000 bytes", read_text, path)


# Limits.


LIST = "[" * 30_000 + "]" * 30_000
ENTITIES = (
    '<!DOCTYPE tmx [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">]>',
    '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/hostname">]>',
)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tmx", tmx([("<hi>" * 3000, "")]), "line 2: more than 100 elements"),
        ("a.tmx", HEADER + "<x>" * 300_000, "line 2: more than 100 elements"),
        ("a.tmx", tmx([("&a;", "")], head=ENTITIES[0]), "declares the entity 'a'"),
        ("a.tmx", tmx([("&a;", "")], head=ENTITIES[1]), "declares the entity 'a'"),
        ("a.tmx", tmx([("&nbsp;", "")]), "is not valid XML: undefined entity"),
        (
            "a.tmx",
            tmx([("&nbsp;", "")], head='<!DOCTYPE tmx SYSTEM "x.dtd">'),
            "line 2: the entity 'nbsp' is unknown",
        ),
        ("a.tmx", HEADER + "<prop>a</prop>" * 800_000, "unit of more than 10,000,000"),
        ("a.jsonl", '{"en": "a", "de": "b"}\n' + LIST, "line 2 is nested too deeply"),
        ("a.jsonl", '{"en": "a", "de": "b"}\n[1]', "line 2 is not an object"),
        ("a.jsonl", '{"en": "a", "de": "b"}\n{"en": 1}', "line 2 has no field 'de'"),
        ("a.jsonl", '{"en": "a", "de": 1}', "line 1: the fields 'en' and 'de' are not"),
        (
            "a.jsonl",
            '{"en": "a \\ud83c\\udf51", "de": "b"}\n{"en": "a", "de": "b \\ud83c"}',
            "line 2, field 'de': character 3 is a lone surrogate, which is not text",
        ),
        ("a.csv", "de,fr\n", "line 1 must name the columns, 'en' and 'de'"),
        ("a.csv", "en,de\na,b\nc\n", "line 3: there are 1 columns, not 2"),
        ("a.csv", 'en;de\n"a;b\n' + "c\n" * 90_000, "repair the quotes"),
        ("a.xlf", XLIFF_1.format(UNIT_1.format("a", "b")[:-4]), "is not valid XML"),
    ],
)
def test_faults_of_pairs(tmp_path, name, content, message):
    path = save(tmp_path / name, content.replace("{}", "en"))
    pairs = PairFile(path, ("en", "de"))
    assert message in refused("", lambda: list(pairs()))


def test_deep_lists_in_a_mixture(tmp_path):
    path = save(tmp_path / "a.toml", f"a = {LIST}")
    refused("nested too deeply", read_mixture, path)


def repeated(text: str, count: int) -> pyarrow.Array:
    indices = pyarrow.array([0] * count, pyarrow.int32())
    return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array([text]))


@pytest.mark.parametrize("nested", [True, False])
def test_a_text_that_parquet_repeats_is_held_once(tmp_path, nested):
    sides = [repeated("x" * 1_000_000, 3000), repeated("b", 3000)]
    columns = dict(zip(("en", "de"), sides, strict=True))
    table = pyarrow.table(columns)
    if nested:
        struct = pyarrow.StructArray.from_arrays(sides, names=[*columns])
        table = pyarrow.table({"translation": struct})
    parquet.write_table(table, tmp_path / "a", store_schema=False, row_group_size=700)
    usual_pool = pyarrow.default_memory_pool()
    pool = pyarrow.proxy_memory_pool(usual_pool)  # which counts from 0
    pyarrow.set_memory_pool(pool)
    tracemalloc.start()
    count = sum(1 for _ in PairFile(tmp_path / "a", ("en", "de"))())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pyarrow.set_memory_pool(usual_pool)
    assert count == 3000 and peak < 20e6
    assert 1e6 < pool.max_memory() < 200e6


def test_parquet_that_would_fill_the_memory(tmp_path):
    path = tmp_path / "a.parquet"
    column = pyarrow.array(["x" * 1_000_000] * 200)
    table = pyarrow.table({"en": column, "de": pyarrow.array(["b"] * 200)})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    message = refused("", lambda: list(PairFile(path, ("en", "de"))()))
    assert f"{path}: the column 'en' would take 2" in message
    long = pyarrow.table({"en": repeated("x" * 10_000_001, 2), "de": ["b"] * 2})
    parquet.write_table(long, path, store_schema=False)
    message = refused("", lambda: list(PairFile(path, ("en", "de"))()))
    assert "has a text of 10,000,001 bytes" in message


def test_units_of_xliff_without_a_translation(tmp_path):
    units = "<trans-unit><source>a</source></trans-unit>" + UNIT_1.format("a", "b")
    pairs = PairFile(save(tmp_path / "a.xlf", XLIFF_1.format(units)))
    assert list(pairs()) == [("a", "b")] and pairs.dropped == {"no_translation": 1}
    pairs = PairFile(pairs.path, ("en", "fr"))
    message = f"{pairs.path} has no unit with en and fr, only en and de-de$"
    refused(message, lambda: list(pairs()))


def test_texts_of_pairs_are_one_line(tmp_path):
    content = 'en,de,id\n"a\nb","c, ""d""",1\n'
    assert list(PairFile(save(tmp_path / "a.csv", content), ("en", "de"))()) == [
        ("a b", 'c, "d"')
    ]
    content = json.dumps({"en": "a\nb", "de": None}) + "\n\n"
    pairs = PairFile(save(tmp_path / "a.jsonl", content), ("en", "de"))
    assert list(pairs()) == [("a b", "")]


# Vocabularies.


def test_vocabularies_of_spm_train(tmp_path, capfd):
    files = [tmp_path / name for name in ("a.en", "a.de")]
    for side, path in enumerate(files):
        save(path, "".join(f"{pair[side]}\n" for pair in PAIRS))
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "byte_fallback": True}
    for name, options in {"mine": ids, "default": {}}.items():
        sentencepiece.SentencePieceTrainer.train(
            input=",".join(map(str, files)),
            model_prefix=str(tmp_path / name),
            vocab_size=320 if options else 60,
            hard_vocab_limit=False,
            minloglevel=2,
            model_type="bpe",
            **options,
        )
    flags = ("--train_source", files[0], "--train_target", files[1], "--workers", "1")
    argv = ("datagen", "--problem", "translate_text", *flags)
    model = tmp_path / "mine.model"
    data = tmp_path / "data"
    result = run_json(capfd, *argv, "--data_dir", data, "--vocab", model)
    assert result["vocab_size"] == load_tokenizer(model).vocab_size
    (copy,) = data.glob("vocab.*.spm")
    assert copy.read_bytes() == model.read_bytes()
    flags = ("--data_dir", tmp_path / "other", "--vocab", tmp_path / "default.model")
    assert "`spm_train --pad_id=0 --eos_id=1" in run_refused(capfd, *argv, *flags)


@pytest.mark.parametrize("suffix", [".spm", ".model", ".subwords", ".words", ".marian"])
def test_pointers_in_place_of_vocabularies(tmp_path, suffix):
    path = save(tmp_path / f"v{suffix}", POINTER)
    with pytest.raises(UserError, match="is a pointer of Git LFS"):
        load_tokenizer(path)
