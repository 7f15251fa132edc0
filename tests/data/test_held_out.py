"""Dev and test pairs out of the training pairs: what users may rely on."""

import collections
import itertools
import random
import tracemalloc

import pytest
from helpers.command_line import run_json, run_refused, write
from helpers.errors import refused
from helpers.small_corpus import PROBLEM, Given, decoded, files

from t2t_keras.data.datagen import generate
from t2t_keras.data.held_out import hold_out
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.mixture import Corpus, Mixture
from t2t_keras.problem import Problem
from t2t_keras.text.alignment import AlignedPair

pytestmark = pytest.mark.usefixtures("small_scale")

SIZES = {"dev": 25, "test": 40}
# Every third source occurs twice, and one 30 times. Some sides are blank.
PAIRS = [(f"source {i - i % 3 // 2}", f"target {i}") for i in range(270)]
PAIRS += [("source  again", f"other {i}") for i in range(30)]
random.Random(0).shuffle(PAIRS)
PAIRS[7:7] = [("", "x"), ("source 3", " \u3000"), (" ", "")]
WHOLE = PROBLEM.replace(sources={"train": Given(PAIRS)})


def held_out(pairs, sizes=SIZES, seed=0) -> dict[str, list[tuple[str, str]]]:
    problem = Problem(summary="", sources={"train": Given(pairs)})
    problem = hold_out(problem, sizes, seed)
    return {split: list(source()) for split, source in problem.sources.items()}


def source_texts(pairs) -> set[str]:
    """The sources, without those of pairs with a blank side, which no split has."""
    return {" ".join(s.split()) for s, target in pairs if s.strip() and target.strip()}


def assert_divided(splits, pairs, sizes) -> None:
    """Each pair is in one split, each source in one split, each split has its size."""
    every = itertools.chain(*splits.values())
    assert collections.Counter(every) == collections.Counter(pairs)
    for one, other in itertools.combinations(splits.values(), 2):
        assert not source_texts(one) & source_texts(other)
    assert {split: len(splits[split]) for split in sizes} == sizes
    order = {pair: index for index, pair in enumerate(pairs)}
    for split in splits.values():  # the order stays
        assert [*split] == sorted(split, key=order.__getitem__)


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    out = tmp_path_factory.mktemp("complete")
    with pytest.MonkeyPatch.context() as monkeypatch:
        from helpers.small_corpus import set_small_scale

        set_small_scale(monkeypatch.setattr)
        generate(WHOLE, out, workers=1, dev_size=25, test_size=40)
    return out


def test_a_source_is_in_one_split(complete):
    splits = held_out(PAIRS)
    assert_divided(splits, PAIRS, SIZES)
    manifest = Manifest.open(complete, "small")
    assert manifest.held_out == SIZES
    assert manifest.examples == {"train": 303 - 3 - 65, "dev": 25, "test": 40}
    assert manifest.dropped["train"]["empty"] == 3
    for split in SIZES:
        # Without the white space at their ends, as all pairs.
        assert decoded(complete, split) == splits[split]
        for text, column in (("sources", 0), ("targets", 1)):
            lines = (complete / f"small-{split}.{text}").read_text().splitlines()
            assert lines == [pair[column] for pair in splits[split]]
    assert {*decoded(complete, "train")} <= {*splits["train"]}


@pytest.mark.parametrize("sizes", [{"dev": 1}, {"test": 7}, {"dev": 200, "test": 50}])
def test_sizes(sizes):
    assert_divided(held_out(PAIRS, sizes), PAIRS, sizes)


def test_every_source_is_equally_likely():
    pairs = [(str(i), "x") for i in range(20)]
    counts = collections.Counter()
    for seed in range(400):
        splits = held_out(pairs, {"dev": 3, "test": 2}, seed)
        counts.update((split, pair[0]) for split in splits for pair in splits[split])
    for split, size in {"dev": 3, "test": 2, "train": 15}.items():
        mean = 400 * size / 20
        for source in range(20):  # 5 standard deviations
            assert abs(counts[split, str(source)] - mean) < 5 * (mean * 0.85) ** 0.5


def test_dev_stays_with_another_size_of_test():
    for test_size in (1, 90):
        splits = held_out(PAIRS, {"dev": 25, "test": test_size})
        assert splits["dev"] == held_out(PAIRS)["dev"]


def test_the_seed_and_the_sizes_are_recorded(complete):
    contents = files(complete)
    for changes, message in (
        ({"dev_size": 25, "test_size": 40, "seed": 1}, "seed was 0 and is now 1"),
        ({"dev_size": 25, "test_size": 41}, "held_out 'test' has changed"),
        ({"dev_size": 25}, "held_out 'test' is gone"),
    ):
        refused(f"made otherwise .*{message}", generate, WHOLE, complete, **changes)
    generate(WHOLE, complete, dev_size=25, test_size=40)
    assert files(complete) == contents
    assert held_out(PAIRS, seed=1)["dev"] != held_out(PAIRS)["dev"]


def test_a_source_is_taken_out_of_all_corpora():
    corpora = []
    for name in ("de", "fr"):
        pairs = [
            AlignedPair(f"source {i}", f"{name} {i}", ((0, 0), (1, 1)))
            for i in range(30)
        ]
        corpora.append(Corpus(name, Given(pairs), weight=0.5, tag=f"<2{name}>"))
    problem = Problem(summary="", sources={"train": Mixture(tuple(corpora))})
    divided = hold_out(problem, {"dev": 12}, seed=4)
    dev = list(divided.sources["dev"]())
    assert len(dev) == 12
    german, french = dev[:6], dev[6:]
    numbers = [target.removeprefix("de ") for _, target in german]
    assert [source for source, _ in german] == [f"<2de> source {i}" for i in numbers]
    assert french == [(f"<2fr> source {i}", f"fr {i}") for i in numbers]
    assert all(pair.links == ((1, 0), (2, 1)) for pair in dev)
    train = divided.sources["train"]
    assert [(c.name, c.weight, c.tag) for c in train.corpora] == [
        ("de", 0.5, "<2de>"),
        ("fr", 0.5, "<2fr>"),
    ]
    assert divided.tags == problem.tags
    every = collections.Counter([*dev, *train()])
    assert every == collections.Counter(problem.sources["train"]())


def test_memory_does_not_grow_with_the_corpus():
    class Generated:
        def __init__(self, count):
            self.count = count

        def __call__(self):
            return ((f"source {i}", "x" * 200) for i in range(self.count))

    peaks = []
    for count in (2_000, 20_000):
        problem = Problem(summary="", sources={"train": Generated(count)})
        problem = hold_out(problem, {"dev": 20}, seed=0)
        tracemalloc.start()
        assert sum(1 for _ in problem.sources["train"]()) == count - 20
        assert len(list(problem.sources["dev"]())) == 20
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 50_000


@pytest.mark.parametrize(
    ("pairs", "sizes", "message"),
    [
        (
            [(str(i), "x") for i in range(20)] + [("", "x")],
            {"dev": 15, "test": 5},
            "--dev_size 15 and --test_size 5 leave nothing for training, which has 20 "
            "pairs; give smaller sizes",
        ),
        (
            [(str(i % 3), "x") for i in range(30)],
            {"test": 9},
            "--test_size 9: every source text has more than 9 pairs, which stay "
            "together; give a larger size",
        ),
    ],
)
def test_sizes_that_do_not_suit(pairs, sizes, message):
    refused(message, held_out, pairs, sizes)


# The command line


@pytest.fixture
def argv(tmp_path):
    source, target = zip(*PAIRS, strict=True)
    files = ("--train_source", write(tmp_path / "source", *source))
    files += ("--train_target", write(tmp_path / "target", *target))
    return [
        *("datagen", "--problem", "translate_text", "--workers", 1),
        *("--data_dir", tmp_path / "data", "--vocab_size", 300, *files),
    ]


def test_sizes_on_the_command_line(argv, capfd):
    result = run_json(capfd, *argv, "--dev_size", 25, "--test_size", 40)
    assert result["examples"] == {"train": 235, "dev": 25, "test": 40}


def test_mistakes_on_the_command_line(argv, capfd, tmp_path):
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    table = ("[[dev]]", f"source = {source!r}", f"target = {target!r}")
    mixture = write(tmp_path / "mixture.toml", *table)
    given = "the problem has dev examples; leave out one of them"
    dev = ["--dev_source", source, "--dev_target", target]
    without = argv[: argv.index("--train_source")]
    for words, message in (
        ([*argv, *dev, "--dev_size", 9], given),
        ([*argv, "--mixture", mixture, "--dev_size", 9], given),
        ([*without, "--test_size", 9], "has no train examples; give --train_source"),
    ):
        assert message in run_refused(capfd, *words)
    assert not list((tmp_path / "data").glob("*.manifest.json"))
