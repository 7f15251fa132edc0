"""Data generation: from the sources of a problem to a data directory, in seven stages.

    stage               output, in {data_name}.incomplete/
    count_pairs         corpora.json, left_out.json
    train_vocabularies  done/vocab.*
    encode_part         part-*/{split}.spill-*, .hashes, .state.json
    write_shards        done/{data_name}-{split}-*-of-*, {split}.lengths-*
                        done/{data_name}-{split}.index.npz
    write_raw_texts     done/{data_name}-{split}.sources, .targets
    write_manifest      done/{data_name}.manifest.json
    publish             all of done/ in the data directory, the manifest last

Every file is written atomically, and a stage is skipped if its output is there: the
same command continues an interrupted run. The bytes depend only on the problem, the
sources and the seed (`DataConfig`), and the memory does not depend on the number of
pairs, except for the tables that docs/data.md lists. TensorFlow is not imported unless
a source needs it.

Several machines that share a disk can divide the work into parts (`Part`). The first
one counts the pairs and trains the vocabularies, each one encodes its part of the
pairs, and the last one to finish writes the shards from all parts.

A complete directory gets only the splits that it lacks, encoded with its vocabularies.
"""

import dataclasses
import errno
import functools
import glob
import itertools
import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from t2t_keras.arguments import checked
from t2t_keras.data.atomic_files import atomic
from t2t_keras.data.checksums import sha256
from t2t_keras.data.cleaning import reason_by_text, reasons
from t2t_keras.data.console import say
from t2t_keras.data.data_config import DataConfig, differences
from t2t_keras.data.duplicates import repeated
from t2t_keras.data.encoding import EncodingConfig
from t2t_keras.data.encoding_pool import CHUNK, encoders
from t2t_keras.data.index_files import index_sha256, save_index
from t2t_keras.data.json_files import read_json, write_json
from t2t_keras.data.languages import guessed_languages
from t2t_keras.data.locks import lock, purpose_of_holder
from t2t_keras.data.manifest import CorpusRecord, Manifest, existing_data
from t2t_keras.data.mixture import Mixture, corpora_of
from t2t_keras.data.progress import progress
from t2t_keras.data.raw_texts import write_texts
from t2t_keras.data.regular_files import refuse_links
from t2t_keras.data.schema import from_fields, typed_value
from t2t_keras.data.sides import SIDES, SPLITS, Side
from t2t_keras.data.spill_files import SpillFiles, read_sorted
from t2t_keras.data.split_files import num_train_shards, shard_name, unfinished_dir
from t2t_keras.data.vocabulary_files import size_of_given, vocab_files
from t2t_keras.data.vocabulary_size import proposed_size, too_large
from t2t_keras.data.worker_processes import num_cores, worker_pool
from t2t_keras.errors import UserError, require_local
from t2t_keras.problem import Pair, Problem, Split
from t2t_keras.text.tokenizers import (
    load_tokenizer,
    tokenizer_kind,
    tokenizer_kinds,
    vocabulary_suffix,
)
from t2t_keras.text.vocabulary_file import write_vocabulary
from t2t_keras.type_hints import Count, Positive, Seed

_SAVE_EVERY = 200_000  # examples after which an interrupted encoding can continue


@dataclasses.dataclass(frozen=True)
class Part:
    """One of `of` parts of the work, made by one process; `number` begins with 1."""

    number: int = 1
    of: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the part that is written "2/4".

        Raises:
            UserError: the text does not have that form, or there is no such part.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match:
            raise UserError(f"--task: write K/N, 2/4 for example, not '{text}'")
        number, of = map(int, match.groups())
        if not 1 <= number <= of:
            raise UserError(
                f"--task {text}: of {of} parts the first is 1/{of} and the last "
                f"{of}/{of}"
            )
        return cls(number, of)


@checked
def generate(
    problem: Problem,
    data_dir: str | Path,
    workers: Positive | None = None,
    seed: Seed = 0,
    part: Part = Part(),
) -> Manifest | None:
    """Makes the data of a problem, or one part of them.

    A vocabulary file that the directory has under the problem's name is used as it is.
    So are the splits that the directory has; missing ones are added.

    Args:
        problem: a problem with a source of training pairs, unless the directory has
            training examples.
        data_dir: the directory to write, which is made if it does not exist. All parts
            must share it.
        workers: number of processes; None for one on each core. With 1 all is done in
            this process. More import the main module, so a script must then call this
            function under `if __name__ == "__main__":`.
        seed: seed of the vocabulary's sample and of the order of the training
            examples.
        part: the part of the work that is done here; by default all of it.

    Returns:
        The manifest of the directory, or None if other parts are missing.

    Raises:
        UserError: a source has a mistake, the directory holds data that was made from
            something else, or it cannot be written.
    """
    require_local("data_dir", data_dir)
    data_dir = Path(data_dir)
    problem = problem.in_data_dir(data_dir)
    size_is_given = problem.vocab_size is not None
    if not size_is_given:
        problem = problem.replace(vocab_size=_chosen_vocab_size(problem, data_dir))
    config = DataConfig.of(problem, data_dir, seed)
    directory = unfinished_dir(data_dir, problem.data_name)
    try:
        manifest = existing_data(config, data_dir)
        if manifest is None:
            problem.source("train")
        elif manifest.sources.keys() >= config.sources.keys():
            # A run that was killed while it published may have left its directory.
            shutil.rmtree(directory, ignore_errors=True)
            say(f"{data_dir}: the data of '{config.problem}' is there already")
            return _with_new_facts(manifest, problem, data_dir)
        # A second time if an earlier run had left something else to publish.
        while manifest is None or not manifest.sources.keys() >= config.sources.keys():
            if manifest is not None:
                config = config.added_to(manifest)
                _refuse_unknown(manifest, config, data_dir)
            if directory.is_symlink():
                refuse_links(directory)
            cores = workers or num_cores()
            job = Job(problem, config, data_dir, part, cores, manifest)
            with lock(job.lock, lambda holder: _busy(directory), job.purpose):
                if not run_stages(job):
                    return None
            manifest = existing_data(config, data_dir)
    except OSError as error:
        raise _write_error(error, data_dir, directory) from error
    if size_is_given:
        tokens: Counter[str] = Counter()
        for side, name in manifest.vocab_files.items():
            tokens[name] += manifest.tokens["train"][side]
        sizes = {manifest.vocab_files[s]: n for s, n in manifest.vocab_sizes.items()}
        for name, size in sizes.items():
            warning = too_large(size, manifest.examples["train"], tokens[name])
            if warning and name not in manifest.given_vocabularies:
                say(warning)
    return manifest


def _with_new_facts(manifest: Manifest, problem: Problem, data_dir: Path) -> Manifest:
    """Writes the licence and the languages of a problem into an earlier manifest."""
    given: dict[str, Any] = {"license": problem.license, "languages": problem.languages}
    new = {k: v for k, v in given.items() if v and v != getattr(manifest, k)}
    if new:
        manifest = dataclasses.replace(manifest, **new)
        path = Manifest.path(data_dir, problem.data_name)
        write_json(path, dataclasses.asdict(manifest), with_checksum=True)
        say(f"the manifest now has the {' and the '.join(new)} of this command")
    return manifest


class Job:
    """What a run of datagen is to make, and the paths of its files.

    Attributes:
        problem: the problem to make data of.
        config: all that the result depends on.
        data_dir: the directory that gets the result.
        part: the part of the work that is done here.
        workers: number of processes.
        earlier: manifest of the directory to which splits are added, if there is one.
        splits: the splits to make, in order.
        corpora: the number of pairs of each corpus, by split and name; filled in by
            `count_pairs`. A split that is not a mixture has one corpus without a name.
        directory: the directory of all files until they are published.
        lock: the lock file of this part.
        done: the directory of what will be published.
        left_out: the file with what the sources left out, by split and reason.
        manifest: the manifest before it is published.
        purpose: the data and the number of parts, the same for all parts.
    """

    def __init__(
        self,
        problem: Problem,
        config: DataConfig,
        data_dir: Path,
        part: Part,
        workers: int,
        earlier: Manifest | None = None,
    ) -> None:
        self.problem, self.config, self.data_dir = problem, config, data_dir
        self.part, self.workers, self.earlier = part, workers, earlier
        present = earlier.sources if earlier else ()
        self.splits = [s for s in SPLITS if s in config.sources and s not in present]
        self.corpora: dict[Split, dict[str, int]] = {}
        self.directory = unfinished_dir(data_dir, problem.data_name)
        self.lock = self.directory / f"part-{part.number}-of-{part.of}.lock"
        self.done = self.directory / "done"
        self.left_out = self.directory / "left_out.json"
        self.manifest = self.done / Manifest.path(data_dir, problem.data_name).name
        self.purpose = f"{part.of} parts, {json.dumps(vars(config))}"

    def vocabulary(self, side: Side) -> Path:
        """Returns the path of the vocabulary of a side."""
        if self.earlier:
            return self.data_dir / self.earlier.vocab_files[side]
        name = vocab_files(self.problem)[side]
        is_given = name in self.config.given_vocabularies
        return (self.data_dir if is_given else self.done) / name

    def split_parts(self, number: int) -> list["SplitPart"]:
        """Returns what belongs to a part of the work in each split."""
        problem, of = self.problem, self.part.of
        directory = self.directory / f"part-{number}-of-{of}"
        found = []
        for split in self.splits:
            sizes = list(self.corpora[split].values())
            total = sum(sizes)
            corpora = tuple(itertools.accumulate(sizes[:-1], initial=0))
            tags = tuple(c.tag for c in corpora_of(problem.sources[split]))
            config = EncodingConfig(num_shards=1, corpora=corpora, tags=tags)
            if split == "train":
                config = dataclasses.replace(
                    config,
                    num_shards=num_train_shards(total),
                    seed=self.config.seed,
                    max_length=problem.max_length,
                    cleaning=problem.cleaning,
                )
            first, end = (total * n // of for n in (number - 1, number))
            found.append(
                SplitPart(
                    split,
                    total,
                    range(first, end),
                    config,
                    [
                        directory / f"{split}.spill-{shard:05d}"
                        for shard in range(config.num_shards)
                    ],
                    directory / f"{split}.hashes",
                    directory / f"{split}.state.json",
                )
            )
        return found

    def lengths(self, split: Split) -> list[np.ndarray]:
        """Returns sizes and lengths of the records of each shard, see `save_index`."""
        paths = sorted(self.directory.glob(f"{split}.lengths-?????"))
        tables = [np.fromfile(path, np.int32).reshape(-1, 4) for path in paths]
        is_mixture = isinstance(self.problem.sources[split], Mixture)
        return [table if is_mixture else table[:, :3] for table in tables]

    def is_made(self) -> bool:
        """Whether all files are made, so that at most they have to be published."""
        present = Manifest.load(Manifest.path(self.data_dir, self.problem.data_name))
        is_published = present and present.sources.keys() >= self.config.sources.keys()
        return is_published or self.manifest.exists()


@dataclasses.dataclass(frozen=True)
class SplitPart:
    """The pairs of a split that belong to one part of the work, and their files.

    Attributes:
        split: the split.
        total: the number of pairs of the whole split.
        pairs: the numbers of the pairs.
        config: how they are encoded.
        spills: the files with the records, by shard.
        hashes: the file with the hashes of the examples, see `repeated`.
        state_file: the file from which an interrupted encoding continues.
    """

    split: Split
    total: int
    pairs: range
    config: EncodingConfig
    spills: list[Path]
    hashes: Path
    state_file: Path

    def state(self) -> "PartState":
        """Returns how far the encoding has come.

        Raises:
            UserError: the state is damaged.
        """
        fields = read_json(self.state_file)
        if fields is None:
            return PartState()
        return from_fields(PartState, fields, self.state_file)

    @property
    def is_complete(self) -> bool:
        """Whether all pairs are encoded."""
        return self.state_file.exists() and self.state().pairs == len(self.pairs)


@dataclasses.dataclass(frozen=True)
class PartState:
    """What `encode_part` saves of a `SplitPart`.

    Attributes:
        pairs: the number of pairs that are encoded.
        sizes: the sizes of the spill files and of the file of hashes, in bytes; None:
            nothing is written yet.
        dropped: the number of examples that were dropped, by reason.
        single_sentences: see `Encoded`.
    """

    pairs: Count = 0
    sizes: list[Count] | None = None
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    single_sentences: dict[str, int] = dataclasses.field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes it, atomically."""
        write_json(path, dataclasses.asdict(self), with_checksum=True)


def run_stages(job: Job) -> bool:
    """Runs the stages in order, as far as this part can.

    Returns:
        Whether the data directory is complete, with all parts.
    """
    alone = job.directory / "lock"  # for which the other parts wait
    with lock(alone, refusal=None):
        refuse_links(job.directory)
        for path in job.directory.glob("part-*.lock"):
            # The purpose is empty for a moment, of a part that is about to look at us.
            purposes = (None, "", job.purpose)
            if path != job.lock and purpose_of_holder(path) not in purposes:
                raise _busy(job.directory)  # with other data, or in other parts
        if not job.is_made():
            start_or_resume(job)
            count_pairs(job)
            train_vocabularies(job)
    if not job.is_made():
        encode_part(job)
    with lock(alone, refusal=None):
        if not job.is_made():
            numbers = range(1, job.part.of + 1)
            by_part = [job.split_parts(number) for number in numbers]
            missing = [
                str(Part(number, job.part.of))
                for number, splits in zip(numbers, by_part, strict=True)
                if not all(split.is_complete for split in splits)
            ]
            if missing:
                say(f"{job.directory}: still to do: --task {', '.join(missing)}")
                return False
            dropped = write_shards(job, by_part)
            write_raw_texts(job)
            write_manifest(job, dropped, single_sentences(by_part))
        publish(job)
    return True


def start_or_resume(job: Job) -> None:
    """Empties the directory, unless an earlier run had the same config."""
    path = job.directory / "config.json"
    fields = read_json(path)
    if fields is not None:
        earlier = from_fields(DataConfig, fields, path)
        changes = differences(vars(earlier), vars(job.config))
        if not changes:
            say(f"{job.directory}: continuing where an earlier run stopped")
            return
        say(f"{job.directory}: starting again, because {'; '.join(changes)}")
    for child in job.directory.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
        elif not child.name.endswith("lock"):
            child.unlink()
    job.done.mkdir()
    write_json(path, dataclasses.asdict(job.config), with_checksum=True)


# Stage 1.


def count_pairs(job: Job) -> None:
    """Counts the pairs of every split by reading its source once.

    Any mistake in a source is found here, before the long work begins.
    """
    path = job.directory / "corpora.json"
    job.corpora = _counts(path)
    left_out = _counts(job.left_out)
    for split in job.splits:
        if split in job.corpora:
            continue
        counts, source = dict[str, int](), job.problem.sources[split]
        for corpus in corpora_of(source):
            name = corpus.name
            counts[name] = 0
            with progress(f"counting {split} {name}".strip(), "pairs") as advance:
                pairs = iter(corpus.source())
                while chunk := sum(1 for _ in itertools.islice(pairs, CHUNK)):
                    counts[name] += chunk
                    advance(chunk)
            if not counts[name]:
                of = f" '{name}'" if name else ""
                dropped = dict(getattr(corpus.source, "dropped", {}))
                left = f"; left out were {dropped}" if dropped else ""
                raise UserError(f"the {split} source{of} has not a single pair{left}")
        job.corpora[split] = counts
        left_out[split] = getattr(source, "dropped", {})
        write_json(job.left_out, left_out, with_checksum=True)
        write_json(path, job.corpora, with_checksum=True)


def _counts(path: Path) -> dict[Split, dict[str, int]]:
    """Returns the counts in a file, by split and name; none if there is no file.

    Raises:
        UserError: the file is damaged.
    """
    hint = dict[Split, dict[str, Count]]
    return typed_value(hint, read_json(path) or {}, "counts", path)


# Stage 2.


def train_vocabularies(job: Job) -> None:
    """Trains one vocabulary for both sides, or one for each, unless they are there.

    Raises:
        UserError: there are too few texts, the vocabulary is too small for them, or it
            lacks a tag.
    """
    problem = job.problem
    for columns in [(0, 1)] if problem.shared_vocab else [(0,), (1,)]:
        path = job.vocabulary(SIDES[columns[0]])
        if path.exists():
            say(f"using the vocabulary {path}")
            continue
        totals = job.corpora["train"]
        most = tokenizer_kind(problem.tokenizer).training_pairs
        size = min(most, sum(totals.values()))
        sizes, source = [size], problem.source("train")
        if isinstance(source, Mixture):  # with the shares of training
            shares = source.shares(totals)
            sizes = [min(totals[name], round(size * shares[name])) for name in totals]
        lines = sum(sizes) * len(columns)
        say(f"training {path.name} on {lines:,} lines")
        with progress(path.name, "lines", lines) as advance:
            train, seed = problem.pairs("train"), job.config.seed
            sample = draw(train, list(totals.values()), sizes, seed)
            texts = (
                pair[column]
                for pair in sample
                if reason_by_text(pair, problem.cleaning) is None
                for column in columns
            )
            new = job.directory / path.name
            train_vocabulary(problem, texts, new, own_process=job.workers > 1)
            os.replace(new, path)
            advance(lines)
    path = job.vocabulary("source")
    sources = [problem.sources[split] for split in job.splits]
    tags = {corpus.tag for source in sources for corpus in corpora_of(source)} - {""}
    for tag in sorted(tags):
        if len(load_tokenizer(path).encode(tag)) != 2:  # it and EOS
            raise UserError(
                f"the tag '{tag}' is not a token of the vocabulary {path}: give a new "
                "--data_dir, in which a vocabulary is trained on data with the tag"
            )


def draw(
    pairs: Iterable[Pair], totals: Sequence[int], sizes: Sequence[int], seed: int
) -> Iterator[Pair]:
    """Draws some of the pairs of each corpus, in order; all choices are equally likely.

    This is Knuth's selection sampling (The Art of Computer Programming 2, 3.4.2,
    algorithm S). Since the totals are known, it keeps nothing in memory.

    Args:
        pairs: the pairs of one corpus after the other.
        totals: the number of pairs of each corpus.
        sizes: the number of pairs to draw from each corpus.
        seed: determines the choice.
    """
    rng = random.Random(seed)
    rest = iter(pairs)
    for total, size in zip(totals, sizes, strict=True):
        taken = 0
        for number, pair in enumerate(itertools.islice(rest, total)):
            if rng.random() * (total - number) < size - taken:
                taken += 1
                yield pair


def train_vocabulary(
    problem: Problem, texts: Iterable[str], path: Path, own_process: bool
) -> None:
    """Trains a vocabulary and writes it.

    Args:
        problem: the problem, with the kind and the size of the vocabulary, the tags of
            sources and the symbols of targets.
        texts: texts of the side or of both sides.
        path: the file to write, named as one of `vocab_files`.
        own_process: trains in another process, so that its memory is freed at the end.

    Raises:
        UserError: there are too few texts, or the vocabulary is too small for them.
    """
    assert problem.vocab_size is not None  # datagen has chosen one
    files = vocab_files(problem)
    symbols = problem.text_processor.symbols if path.name == files["target"] else ()
    symbols += problem.tags if path.name == files["source"] else ()
    train = functools.partial(tokenizer_kind(problem.tokenizer).train, symbols=symbols)
    if not own_process:
        train(texts, path, problem.vocab_size)
        return
    lines = path.with_suffix(".lines")
    with lines.open("w", encoding="utf-8") as file:
        # As JSON, since a text from a user's source may contain a newline.
        file.writelines(f"{json.dumps(text)}\n" for text in texts)
    with worker_pool(1) as pool:
        pool.submit(_train_on_file, train, lines, path, problem.vocab_size).result()
    lines.unlink()


def _train_on_file(
    train: Callable[..., None], lines: Path, path: Path, vocab_size: int
) -> None:
    with lines.open(encoding="utf-8") as file:
        train(map(json.loads, file), path, vocab_size)


# Stage 3.


def encode_part(job: Job) -> None:
    """Encodes this part of every split, from the last state that was saved."""
    splits = [
        split for split in job.split_parts(job.part.number) if not split.is_complete
    ]
    if not splits:
        return
    vocabularies = job.vocabulary("source"), job.vocabulary("target")
    num_chunks = -(-sum(len(it.pairs) for it in splits) // CHUNK)
    workers = max(1, min(job.workers, num_chunks))
    with encoders(vocabularies, workers) as encode:
        for it in reversed(splits):  # the small splits first
            it.state_file.parent.mkdir(exist_ok=True)
            total, state = len(it.pairs), it.state()
            saved = done = state.pairs
            dropped = Counter(state.dropped)
            singles = Counter(state.single_sentences)
            name, files = f"encoding {it.split}", [*it.spills, it.hashes]
            with (
                SpillFiles(files, state.sizes) as spills,
                progress(name, "pairs", total, done) as advance,
            ):
                first, pairs = it.pairs.start + done, job.problem.pairs(it.split)
                rest = itertools.islice(pairs, first, it.pairs.stop)
                for encoded in encode(rest, it.config, first):
                    hashes = {it.config.num_shards: encoded.hashes}
                    spills.append({**encoded.spills, **hashes})
                    dropped += encoded.dropped
                    singles += encoded.single_sentences
                    done += encoded.pairs
                    advance(encoded.pairs)
                    if done - saved >= _SAVE_EVERY or done == total:
                        state = PartState(
                            pairs=done,
                            sizes=spills.flush(),
                            dropped=dict(dropped),
                            single_sentences=dict(singles),
                        )
                        state.save(it.state_file)
                        saved = done
                if not total:  # there are fewer pairs than parts
                    PartState(0, spills.flush()).save(it.state_file)
            if done != total:
                it.state_file.unlink(missing_ok=True)
                raise _changed(it.split, it.total, it.pairs.start + done)


def _changed(split: Split, total: int, found: int) -> UserError:
    """Returns the error for a source that does not yield the same pairs every time."""
    return UserError(
        f"the {split} source gave {total:,} pairs at first and {found:,} when read "
        "again; it must give the same ones every time"
    )


# Stage 4.


def write_shards(
    job: Job, by_part: Sequence[Sequence[SplitPart]]
) -> dict[Split, Counter[str]]:
    """Sorts the spill files of all parts into shards, and writes the indices.

    Returns:
        The number of dropped examples of every split, by reason.
    """
    dropped, name = {}, job.problem.data_name
    for parts in zip(*by_part, strict=True):
        split = parts[0].split
        repeats = repeated([part.hashes for part in parts])
        counts = (Counter(part.state().dropped) for part in parts)
        dropped[split] = sum(counts, Counter(duplicate=len(repeats)))
        index = job.done / f"{name}-{split}.index.npz"
        if index.exists():
            continue
        of, shards = parts[0].config.num_shards, list[Path]()
        with progress(f"writing {split}", "shards", of) as advance:
            for i, spills in enumerate(zip(*(p.spills for p in parts), strict=True)):
                shard = job.done / shard_name(name, split, i, of)
                shards.append(shard)
                if not shard.exists():
                    examples, rows = read_sorted(spills, without=repeats)
                    with atomic(job.directory / f"{split}.lengths-{i:05d}") as path:
                        path.write_bytes(rows.tobytes())
                    with atomic(shard) as path, path.open("wb", 1 << 20) as file:
                        file.writelines(examples)
                for spill in spills:
                    spill.unlink(missing_ok=True)
                advance(1)
        save_index(index, shards, job.lengths(split))
    return dropped


# Stage 5.


def write_raw_texts(job: Job) -> None:
    """Writes the raw texts of dev and test, with which metrics compare.

    Raises:
        UserError: their number has changed since they were counted.
    """
    for split in job.splits:
        stem = f"{job.problem.data_name}-{split}"
        files = [job.done / f"{stem}.{side}s" for side in SIDES]
        if split == "train" or all(file.exists() for file in files):
            continue
        found = write_texts(files, job.problem.sources[split]())
        if found != (total := sum(job.corpora[split].values())):
            for file in files:
                file.unlink()
            raise _changed(split, total, found)


# Stage 6.


def single_sentences(
    by_part: Sequence[Sequence[SplitPart]],
) -> dict[Split, dict[Side, float]]:
    """Returns for each split and side the share of examples of one sentence.

    Repeated examples count, also if they are dropped.
    """
    shares: dict[Split, dict[Side, float]] = {}
    for parts in zip(*by_part, strict=True):
        states = [part.state() for part in parts]
        kept = sum(it.pairs - sum(it.dropped.values()) for it in states)
        counts = sum((Counter(it.single_sentences) for it in states), Counter[str]())
        if kept:
            shares[parts[0].split] = {
                side: round(counts[side] / kept, 6) for side in SIDES
            }
    return shares


def write_manifest(
    job: Job,
    dropped: dict[Split, Counter[str]],
    single_sentences: dict[Split, dict[Side, float]],
) -> None:
    """Writes the manifest of the new and of the earlier splits."""
    problem, earlier = job.problem, job.earlier
    files = {side: job.vocabulary(side) for side in SIDES}
    left_out = _counts(job.left_out)
    names = ("examples", "dropped", "tokens", "corpora", "text_sha256", "index_sha256")
    new: dict[str, Any] = {name: {} for name in names}
    new["single_sentences"] = single_sentences
    for split in job.splits:
        tables = job.lengths(split)
        new["examples"][split] = sum(map(len, tables))
        new["index_sha256"][split] = index_sha256(tables)
        new["tokens"][split] = {
            side: sum(int(table[:, column].sum()) for table in tables)
            for column, side in enumerate(SIDES, start=1)
        }
        counted = {r: dropped[split][r] for r in reasons(problem.cleaning)}
        new["dropped"][split] = counted | left_out[split]
        if split != "train":
            stem = f"{problem.data_name}-{split}"
            texts = [job.done / f"{stem}.{side}s" for side in SIDES]
            new["text_sha256"][split] = [sha256(path) for path in texts]
        source = problem.sources[split]
        if isinstance(source, Mixture):
            pairs = job.corpora[split]
            numbers = np.concatenate([table[:, 3] for table in tables])
            counts = np.bincount(numbers, minlength=len(pairs)).tolist()
            examples = dict(zip(pairs, counts, strict=True))
            shares = source.checked_shares(examples)
            new["corpora"][split] = {
                name: CorpusRecord(pairs=n, examples=examples[name], share=shares[name])
                for name, n in pairs.items()
            }
    if not (earlier or new["examples"]["train"]):
        raise UserError(
            f"not one training pair of {sum(job.corpora['train'].values()):,} is left: "
            f"dropped were {new['dropped']['train']}; drop fewer (--clean, "
            "--max_length)"
        )
    if earlier:
        for name, by_split in new.items():
            both = getattr(earlier, name) | by_split
            new[name] = {split: both[split] for split in SPLITS if split in both}
        new |= {"bpe_dropout": earlier.bpe_dropout, "copies": earlier.copies}
    languages = problem.languages or (earlier.languages if earlier else None)
    has_texts = problem.metrics is None or hasattr(problem.metrics, "languages")
    if languages is None and has_texts:  # the last splits are shorter, and cleaner
        sources = (problem.sources[split] for split in reversed(job.splits))
        languages = next(filter(None, map(guessed_languages, sources)), None)
    manifest = Manifest(
        **vars(job.config),
        vocab_files={side: path.name for side, path in files.items()},
        vocab_sizes={s: load_tokenizer(path).vocab_size for s, path in files.items()},
        vocab_sha256={side: sha256(path) for side, path in files.items()},
        languages=languages,
        license=problem.license or (earlier.license if earlier else ""),
        **new,
    )
    write_json(job.manifest, dataclasses.asdict(manifest), with_checksum=True)


# Stage 7.


def publish(job: Job) -> None:
    """Moves the finished files into the data directory, the manifest last."""
    if job.done.exists():  # another part may have published them
        left_by_a_kill = {*job.done.glob("*.incomplete"), *job.done.glob("*.tmp")}
        paths = sorted({*job.done.iterdir()} - left_by_a_kill)
        for path in sorted(paths, key=lambda path: path == job.manifest):
            os.replace(path, job.data_dir / path.name)
    # Another part may remove the directory as well, or make its lock file there again;
    # then that part removes the rest.
    shutil.rmtree(job.directory, ignore_errors=True)


# The choice of the vocabulary, and refusals.


def _chosen_vocab_size(problem: Problem, data_dir: Path) -> int:
    """Returns the size of the vocabulary of a problem that names none.

    It is the size of the directory's data or vocabulary, or else one that suits the
    number of training pairs, see `proposed_size`.

    Raises:
        UserError: a source has a mistake.
    """
    manifest = Manifest.load(Manifest.path(data_dir, problem.data_name))
    if manifest is not None:
        return manifest.vocab_size
    if (size := size_of_given(problem, data_dir)) is not None:
        return size
    pairs, characters = 0, set[str]()
    for source, target in problem.pairs("train"):
        pairs += 1
        characters.update(source, target)
    size = proposed_size(pairs, len(characters))
    say(
        f"vocabulary: {size:,} tokens, which suit {pairs:,} training pairs with "
        f"{len(characters):,} different characters: fewer pairs show each token too "
        "seldom, more allow longer ones (--vocab_size gives another size)"
    )
    return size


def use_vocabularies(
    problem: Problem, files: tuple[Path, Path], data_dir: Path
) -> Problem:
    """Copies vocabularies into a data directory, where `generate` finds them.

    Args:
        problem: the problem to make data of.
        files: those of source and target; one file twice if they share it.
        data_dir: the data directory, which is made if absent.

    Returns:
        The problem with the kind and the size of the vocabularies.

    Raises:
        UserError: a file is not a vocabulary, the two are of different kinds, or the
            directory has another vocabulary in its place.
    """
    sizes = [load_tokenizer(path).vocab_size for path in files]
    kinds = {kind.suffix: name for name, kind in tokenizer_kinds()}
    suffixes = [vocabulary_suffix(path) for path in files]
    if suffixes[0] != suffixes[1]:
        raise UserError(f"{files[0]} and {files[1]} are of different kinds")
    problem = problem.replace(
        tokenizer=kinds[suffixes[0]],
        vocab_size=max(sizes),
        shared_vocab=files[0].read_bytes() == files[1].read_bytes(),
    )
    if problem.reverse:  # the data are those of the other direction
        files = files[::-1]
    data_dir.mkdir(parents=True, exist_ok=True)
    for file, name in zip(files, vocab_files(problem).values(), strict=True):
        path = data_dir / name
        if path.exists() and path.read_bytes() != file.read_bytes():
            raise UserError(f"{path} is another vocabulary; give a new --data_dir")
        write_vocabulary(path, file.read_bytes())
    return problem


def _refuse_unknown(manifest: Manifest, config: DataConfig, data_dir: Path) -> None:
    """Refuses to write over a split that the manifest does not list.

    Raises:
        UserError: there is one among the splits to make.
    """
    if unfinished_dir(data_dir, config.problem).exists():
        return  # the split may be ours, from a run that was killed while it published
    for split in config.sources.keys() - manifest.sources.keys():
        for path in data_dir.glob(
            f"{glob.escape(config.problem)}-{split}-?????-of-?????"
        ):
            raise UserError(
                f"{path} is there, and the manifest of '{config.problem}' does not "
                f"know it; remove it, or leave out the {split} examples"
            )


def _busy(directory: Path) -> UserError:
    """Returns the error for a directory in which another run works."""
    return UserError(
        f"another `t2t datagen` is at work in {directory}; wait until it is done"
    )


def _write_error(error: OSError, data_dir: Path, directory: Path) -> Exception:
    """Returns the `UserError` for a disk that is full or cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError(
            f"the disk of {data_dir} is full; free some space and run the same command "
            f"again, which continues where it stopped (or remove {directory})"
        )
    if error.filename is None:
        return error
    return UserError(f"cannot write {error.filename}: {error.strerror}")
