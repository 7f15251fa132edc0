"""Data generation: from the sources of a problem to a data directory, in seven stages.

    stage               output, in {data_name}.incomplete/
    count_pairs         corpora.json, left_out.json
    train_vocabularies  done/vocab.*
    encode_share        task-*/{split}.spill-*, .hashes, .state.json
    write_shards        done/{data_name}-{split}-*-of-*, {split}.lengths-*.npy
                        done/{data_name}-{split}.index.npz
    write_raw_texts     done/{data_name}-{split}.sources, .targets
    write_manifest      done/{data_name}.manifest.json
    publish             all of done/ in the data directory, the manifest last

Every file is written atomically, and a stage is skipped if its output is there: the
same command goes on where an earlier run was interrupted. The bytes depend only on the
problem, the sources and the seed (`Recipe`), and the memory does not depend on the
number of pairs. TensorFlow is not imported unless a source needs it.

Several machines that share a disk can divide the work (`Task`). The first one counts
the pairs and trains the vocabularies, each one encodes its share of the pairs, and the
last one to finish writes the shards from all shares.

A complete directory gets only the splits that it lacks, encoded with its vocabularies.
"""

import contextlib
import dataclasses
import errno
import itertools
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from t2t_keras.data import encoding, records, vocabulary
from t2t_keras.data.encoding import Rule, reason_by_text, reasons, repeated
from t2t_keras.data.files import (
    lock,
    progress,
    purpose_of_holder,
    read_json,
    say,
    sha256,
    write_array,
    write_json,
)
from t2t_keras.data.manifest import SPLITS, CorpusRecord, Manifest, Recipe, held
from t2t_keras.data.records import unfinished_dir
from t2t_keras.data.sources import Mixture, corpora_of
from t2t_keras.data.vocabulary import SIDES, Side
from t2t_keras.option import UserError, require_local
from t2t_keras.problem import Pair, Problem, Split
from t2t_keras.text.tokenizer import load_tokenizer

_SAVE_EVERY = 200_000  # examples after which an interrupted encoding can go on


@dataclasses.dataclass(frozen=True)
class Task:
    """One of `of` runs of datagen that share the work; `number` begins with 1.

    Raises:
        UserError: there is no such task.
    """

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise UserError(
                f"--task {self}: of {self.of} tasks the first is 1/{self.of} and the "
                f"last {self.of}/{self.of}"
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the task that is written "2/4".

        Raises:
            UserError: the text does not have that form.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match:
            raise UserError(f"--task: write K/N, 2/4 for example, not '{text}'")
        return cls(int(match[1]), int(match[2]))

    @property
    def name(self) -> str:
        """The name of its directory and of its lock file."""
        return f"task-{self.number:05d}-of-{self.of:05d}"

    def all(self) -> list["Task"]:
        """Returns all tasks that share the work, in order."""
        return [Task(number, self.of) for number in range(1, self.of + 1)]

    def share(self, total: int) -> range:
        """Returns the numbers of the pairs that it encodes."""
        first, end = (total * n // self.of for n in (self.number - 1, self.number))
        return range(first, end)


def generate(
    problem: Problem,
    data_dir: str | Path,
    workers: int | None = None,
    seed: int = 0,
    task: Task = Task(),
) -> Manifest | None:
    """Makes the data of a problem, or one task's share of it.

    A vocabulary file that the directory has under the problem's name is used as it is.
    So are the splits that the directory has; missing ones are added.

    Args:
        problem: a problem with a source of training pairs, unless the directory has
            training examples.
        data_dir: the directory to write, which is made if it does not exist. All tasks
            must share it.
        workers: number of processes; None for one on each core. With 1 all is done in
            this process. More import the main module, so a script must then call this
            function under `if __name__ == "__main__":`.
        seed: seed of the vocabulary's sample and of the order of the training
            examples.
        task: the share of the work that is done here; by default all of it.

    Returns:
        The manifest of the directory, or None if shares of other tasks are missing.

    Raises:
        UserError: a source has a mistake, the directory holds data that was made from
            something else, or it cannot be written.
    """
    require_local("data_dir", data_dir)
    data_dir = Path(data_dir)
    size_is_given = problem.vocab_size is not None
    problem = _with_vocab_size(problem, data_dir)
    recipe = Recipe.of(problem, data_dir, seed)
    directory = unfinished_dir(data_dir, problem.data_name)
    with _user_errors(data_dir, directory):
        manifest = held(recipe, data_dir)
        if manifest is None:
            problem.source("train")
        elif manifest.has(recipe.sources):
            # A run that was killed while it published may have left its directory.
            shutil.rmtree(directory, ignore_errors=True)
            say(f"{data_dir}: the data of '{recipe.problem}' is there already")
            if problem.license not in ("", manifest.license):
                manifest = dataclasses.replace(manifest, license=problem.license)
                manifest.save(Manifest.path(data_dir, problem.data_name))
                say(f"the manifest now has the licence '{problem.license}'")
            return manifest
        # A second time if an earlier run had left something else to publish.
        while manifest is None or not manifest.has(recipe.sources):
            if manifest is not None:
                recipe = recipe.added_to(manifest)
                _refuse_unknown(manifest, recipe, data_dir)
            cores = workers or encoding.num_cores()
            work = Work(problem, recipe, data_dir, task, cores, manifest)
            own = directory / f"{task.name}.lock"
            with lock(own, lambda holder: _at_work(directory), work.purpose):
                if not run_stages(work):
                    return None
            manifest = held(recipe, data_dir)
    if size_is_given:
        _warn_if_too_large(manifest)
    return manifest


class Work:
    """What a run of datagen is to make, and the paths of its files.

    Attributes:
        problem: the problem to make data of.
        recipe: all that the result depends on.
        data_dir: the directory that gets the result.
        task: the share of the work that is done here.
        workers: number of processes.
        earlier: manifest of the directory to which splits are added, if there is one.
        splits: the splits to make, in order.
        corpora: the number of pairs of each corpus, by split and name; filled in by
            `count_pairs`. A split that is no mixture has one corpus without a name.
        directory: the directory of all files until they are published.
        left_out: the file with what the sources left out, by split and reason.
        manifest: the manifest before it is published.
        purpose: what is made, and by how many tasks: the same for all of them.
    """

    def __init__(
        self,
        problem: Problem,
        recipe: Recipe,
        data_dir: Path,
        task: Task,
        workers: int,
        earlier: Manifest | None = None,
    ) -> None:
        self.problem, self.recipe, self.data_dir = problem, recipe, data_dir
        self.task, self.workers, self.earlier = task, workers, earlier
        present = earlier.sources if earlier else ()
        self.splits = [s for s in SPLITS if s in recipe.sources and s not in present]
        self.corpora: dict[Split, dict[str, int]] = {}
        self.directory = unfinished_dir(data_dir, problem.data_name)
        self.left_out = self.directory / "left_out.json"
        self.manifest = self.done(Manifest.path(data_dir, problem.data_name))
        self.purpose = f"{task.of} tasks, {recipe.digest()}"

    def done(self, path: Path | str) -> Path:
        """Returns the path of a file of the data directory before it is published."""
        return self.directory / "done" / Path(path).name

    def vocabulary(self, side: Side) -> Path:
        """Returns the path of the vocabulary of a side."""
        if self.earlier:
            return self.data_dir / self.earlier.vocab_files[side]
        name = vocabulary.vocab_files(self.problem)[side]
        is_given = name in self.recipe.given_vocabularies
        return self.data_dir / name if is_given else self.done(name)

    def pairs(self, split: Split) -> int:
        """Returns the number of pairs of a split."""
        return sum(self.corpora[split].values())

    def rule(self, split: Split) -> Rule:
        """Returns how the pairs of a split are encoded."""
        sizes = list(self.corpora[split].values())
        corpora = tuple(itertools.accumulate(sizes[:-1], initial=0))
        tags = tuple(c.tag for c in corpora_of(self.problem.sources[split]))
        if split != "train":
            return Rule(num_shards=1, corpora=corpora, tags=tags)
        problem = self.problem
        return Rule(
            records.num_train_shards(self.pairs("train") * problem.copies),
            self.recipe.seed,
            problem.max_length,
            problem.cleaning,
            problem.bpe_dropout,
            problem.copies,
            corpora,
            tags,
        )

    def shares(self, task: Task) -> list["Share"]:
        """Returns what a task encodes of each split."""
        directory = self.directory / task.name
        return [
            Share(directory, split, task.share(self.pairs(split)), self.rule(split))
            for split in self.splits
        ]

    def lengths(self, split: Split) -> list[Path]:
        """Returns, for each shard, the file with sizes and lengths of its records."""
        shards = range(self.rule(split).num_shards)
        return [self.directory / f"{split}.lengths-{i:05d}.npy" for i in shards]

    def is_made(self) -> bool:
        """Whether all files are made, so that at most they have to be published."""
        present = Manifest.load(Manifest.path(self.data_dir, self.problem.data_name))
        is_published = present is not None and present.has(self.recipe.sources)
        return is_published or self.manifest.exists()


class Share:
    """The pairs of a split that one task encodes, and the files for them.

    Attributes:
        split: the split.
        pairs: the numbers of the pairs.
        rule: how they are encoded.
        spills: the files with the records, by shard.
        hashes: the file with the hashes of the examples, see `cleaning.repeated`.
        state_file: the file from which an interrupted encoding goes on.
    """

    def __init__(self, directory: Path, split: Split, pairs: range, rule: Rule) -> None:
        self.split, self.pairs, self.rule = split, pairs, rule
        shards = range(rule.num_shards)
        self.spills = [directory / f"{split}.spill-{i:05d}" for i in shards]
        self.hashes = directory / f"{split}.hashes"
        self.state_file = directory / f"{split}.state.json"

    def state(self) -> dict[str, Any]:
        """Returns the number of encoded pairs, the sizes of the files, the dropped."""
        start: dict[str, Any] = {"pairs": 0, "sizes": None, "dropped": {}}
        return read_json(self.state_file) or start

    def is_complete(self) -> bool:
        """Whether all pairs are encoded."""
        state = self.state()
        return state["sizes"] is not None and state["pairs"] == len(self.pairs)


def run_stages(work: Work) -> bool:
    """Runs the stages in order, as far as this task can.

    Returns:
        Whether the data directory is complete, with the shares of all tasks.
    """
    alone = work.directory / "lock"  # for which the other tasks wait
    with lock(alone, refusal=None):
        _refuse_others(work)
        if not work.is_made():
            start_or_resume(work)
            count_pairs(work)
            train_vocabularies(work)
            _require_tags(work)
    if not work.is_made():
        encode_share(work)
    with lock(alone, refusal=None):
        if not work.is_made():
            missing = [
                str(task)
                for task in work.task.all()
                if not all(share.is_complete() for share in work.shares(task))
            ]
            if missing:
                say(f"{work.directory}: still to do: task {', '.join(missing)}")
                return False
            dropped = write_shards(work)
            write_raw_texts(work)
            write_manifest(work, dropped)
        publish(work)
    return True


def start_or_resume(work: Work) -> None:
    """Empties the work directory, unless an earlier run had the same recipe."""
    path = work.directory / "recipe.json"
    earlier = Recipe.load(path)
    if earlier is not None:
        differences = earlier.differences(work.recipe)
        if not differences:
            say(f"{work.directory}: going on where an earlier run stopped")
            return
        say(f"{work.directory}: starting anew, for {'; '.join(differences)}")
    for child in work.directory.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
        elif not child.name.endswith("lock"):
            child.unlink()
    (work.directory / "done").mkdir()
    work.recipe.save(path)


# Stage 1.


def count_pairs(work: Work) -> None:
    """Counts the pairs of every split by reading its source once.

    Any mistake in a source is found here, before the long work begins.
    """
    path = work.directory / "corpora.json"
    work.corpora = read_json(path) or {}
    left_out: dict[Split, dict[str, int]] = read_json(work.left_out) or {}
    for split in work.splits:
        if split in work.corpora:
            continue
        counts, source = dict[str, int](), work.problem.sources[split]
        for corpus in corpora_of(source):
            name = corpus.name
            counts[name] = 0
            with progress(f"counting {split} {name}".strip(), "pairs") as advance:
                pairs = iter(corpus.source())
                while chunk := sum(1 for _ in itertools.islice(pairs, encoding.CHUNK)):
                    counts[name] += chunk
                    advance(chunk)
            if not counts[name]:
                of = f" '{name}'" if name else ""
                dropped = dict(getattr(corpus.source, "dropped", {}))
                left = f"; left out were {dropped}" if dropped else ""
                raise UserError(f"the {split} source{of} has not a single pair{left}")
        work.corpora[split] = counts
        left_out[split] = getattr(source, "dropped", {})
        write_json(work.left_out, left_out)
        write_json(path, work.corpora)


# Stage 2.


def train_vocabularies(work: Work) -> None:
    """Trains one vocabulary for both sides, or one for each, unless they are there."""
    if work.earlier:
        return
    problem, totals = work.problem, work.corpora["train"]
    sizes = _sample_sizes(problem, totals)
    for columns in [(0, 1)] if problem.shared_vocab else [(0,), (1,)]:
        path = work.vocabulary(SIDES[columns[0]])
        if path.exists():
            say(f"using the vocabulary {path}")
            continue
        lines = sum(sizes) * len(columns)
        say(f"training {path.name} on {lines:,} lines")
        with progress(path.name, "lines", lines) as advance:
            train = problem.pairs("train")
            seed = work.recipe.seed
            sample = vocabulary.draw(train, list(totals.values()), sizes, seed)
            texts = (
                pair[column]
                for pair in sample
                if reason_by_text(pair, problem.cleaning) is None
                for column in columns
            )
            new = work.directory / path.name
            own_process = work.workers > 1
            vocabulary.train_vocabulary(problem, texts, new, own_process)
            os.replace(new, path)
            advance(lines)


def _require_tags(work: Work) -> None:
    """Refuses tags that are not tokens of the source's vocabulary.

    Raises:
        UserError: there is one.
    """
    path = work.vocabulary("source")
    sources = [work.problem.sources[split] for split in work.splits]
    tags = {corpus.tag for source in sources for corpus in corpora_of(source)} - {""}
    for tag in sorted(tags):
        if len(load_tokenizer(path).encode(tag)) != 2:  # it and EOS
            raise UserError(
                f"the tag '{tag}' is not a token of the vocabulary {path}: give a new "
                "--data_dir, in which a vocabulary is trained on data with the tag"
            )


def _sample_sizes(problem: Problem, totals: dict[str, int]) -> list[int]:
    """Returns how many pairs of each corpus the vocabulary is trained on.

    The corpora of a mixture have the same shares as in training, as far as they have
    enough pairs.
    """
    size = vocabulary.sample_size(problem, sum(totals.values()))
    source = problem.source("train")
    if not isinstance(source, Mixture):
        return [size]
    shares = source.shares(totals)
    return [min(totals[name], round(size * shares[name])) for name in totals]


# Stage 3.


def encode_share(work: Work) -> None:
    """Encodes this task's share of every split into spill files."""
    shares = [share for share in work.shares(work.task) if not share.is_complete()]
    if not shares:
        return
    vocabularies = work.vocabulary("source"), work.vocabulary("target")
    num_chunks = -(-sum(len(share.pairs) for share in shares) // encoding.CHUNK)
    workers = max(1, min(work.workers, num_chunks))
    with encoding.encoders(vocabularies, workers) as encode:
        for share in reversed(shares):  # the small splits first
            _encode_split(work, share, encode)


def _encode_split(work: Work, share: Share, encode: encoding.Encode) -> None:
    """Encodes the pairs of a share, from the last state that was saved."""
    share.state_file.parent.mkdir(exist_ok=True)
    rule, total, state = share.rule, len(share.pairs), share.state()
    done, dropped = state["pairs"], Counter(state["dropped"])
    with (
        encoding.Spills([*share.spills, share.hashes], state["sizes"]) as spills,
        progress(f"encoding {share.split}", "pairs", total, done) as advance,
    ):
        saved, first = done, share.pairs.start + done
        pairs = work.problem.pairs(share.split)
        rest = itertools.islice(pairs, first, share.pairs.stop)
        for encoded in encode(rest, rule, first):
            spills.append({**encoded.spills, rule.num_shards: encoded.hashes})
            dropped += encoded.dropped
            done += encoded.pairs
            advance(encoded.pairs)
            if (done - saved) * rule.copies >= _SAVE_EVERY or done == total:
                state = {"pairs": done, "sizes": spills.flush(), "dropped": dropped}
                write_json(share.state_file, state)
                saved = done
        if not total:  # there are fewer pairs than tasks
            write_json(share.state_file, state | {"sizes": spills.flush()})
    if done != total:
        share.state_file.unlink(missing_ok=True)
        raise _changed(work, share.split, share.pairs.start + done)


def _changed(work: Work, split: Split, found: int) -> UserError:
    """Returns the error for a source that does not yield the same pairs every time."""
    return UserError(
        f"the {split} source gave {work.pairs(split):,} pairs at first and {found:,} "
        "when read again; it must give the same ones every time"
    )


# Stage 4.


def write_shards(work: Work) -> dict[Split, Counter[str]]:
    """Sorts the spill files of all tasks into shards, and writes the indices.

    Returns:
        The number of dropped examples of every split, by reason.
    """
    dropped, name = {}, work.problem.data_name
    by_split = zip(*map(work.shares, work.task.all()), strict=True)
    for split, shares in zip(work.splits, by_split, strict=True):
        repeats = repeated([share.hashes for share in shares])
        counts = (Counter(share.state()["dropped"]) for share in shares)
        dropped[split] = sum(counts, Counter(duplicate=len(repeats)))
        index = work.done(records.index_path(work.data_dir, name, split))
        if index.exists():
            continue
        lengths = work.lengths(split)
        shards = [
            work.done(records.shard_name(name, split, i, len(lengths)))
            for i in range(len(lengths))
        ]
        is_mixture = isinstance(work.problem.sources[split], Mixture)
        files = zip(shards, lengths, *(share.spills for share in shares), strict=True)
        with progress(f"writing {split}", "shards", len(shards)) as advance:
            for shard, table, *spills in files:
                if not shard.exists():
                    examples, rows = encoding.read_sorted(spills, without=repeats)
                    write_array(table, rows if is_mixture else rows[:, :3])
                    records.write_frames(shard, examples)
                for spill in spills:
                    spill.unlink(missing_ok=True)
                advance(1)
        tables = [np.load(table, mmap_mode="r") for table in lengths]
        records.save_index(index, shards, tables)
    return dropped


# Stage 5.


def write_raw_texts(work: Work) -> None:
    """Writes the raw texts of dev and test, with which metrics compare."""
    for split in work.splits:
        paths = records.text_paths(work.data_dir, work.problem.data_name, split)
        files = [work.done(path) for path in paths]
        if split == "train" or all(file.exists() for file in files):
            continue
        records.write_texts(files, _same_pairs(work, split))


def _same_pairs(work: Work, split: Split) -> Iterator[Pair]:
    """Yields the pairs of a split; raises `UserError` if their number has changed."""
    found = 0
    for pair in work.problem.sources[split]():
        found += 1
        yield pair
    if found != work.pairs(split):
        raise _changed(work, split, found)


# Stage 6.


def write_manifest(work: Work, dropped: dict[Split, Counter[str]]) -> None:
    """Writes the manifest of the new and of the earlier splits."""
    files = {side: work.vocabulary(side) for side in SIDES}
    left_out = read_json(work.left_out)
    new: dict[str, Any] = {"examples": {}, "dropped": {}, "tokens": {}, "corpora": {}}
    for split in work.splits:
        tables = [np.load(path) for path in work.lengths(split)]
        new["examples"][split] = sum(map(len, tables))
        new["tokens"][split] = {
            side: sum(int(table[:, column].sum()) for table in tables)
            for column, side in enumerate(SIDES, start=1)
        }
        counted = {r: dropped[split][r] for r in reasons(work.problem.cleaning)}
        new["dropped"][split] = counted | left_out[split]
        source = work.problem.sources[split]
        if isinstance(source, Mixture):
            new["corpora"][split] = _corpora(source, work.corpora[split], tables)
    if not (work.earlier or new["examples"]["train"]):
        raise UserError(
            f"not one training pair is left of {work.pairs('train'):,}: dropped were "
            f"{new['dropped']['train']}; drop fewer (--clean, --max_length)"
        )
    for name, by_split in new.items():
        both = getattr(work.earlier, name, {}) | by_split
        new[name] = {split: both[split] for split in SPLITS if split in both}
    Manifest(
        **work.recipe.values(),
        vocab_files={side: path.name for side, path in files.items()},
        vocab_sizes={s: load_tokenizer(path).vocab_size for s, path in files.items()},
        vocab_sha256={side: sha256(path) for side, path in files.items()},
        license=work.problem.license or getattr(work.earlier, "license", ""),
        **new,
    ).save(work.manifest)


def _corpora(
    source: Mixture, pairs: dict[str, int], tables: list[np.ndarray]
) -> dict[str, CorpusRecord]:
    """Returns what the manifest has of the corpora of a mixture.

    Args:
        source: the mixture.
        pairs: the number of pairs of each corpus.
        tables: for each shard, int32 [N, 4], see `save_index`.
    """
    numbers = np.concatenate([table[:, 3] for table in tables])
    counts = np.bincount(numbers, minlength=len(pairs)).tolist()
    examples = dict(zip(pairs, counts, strict=True))
    shares = source.checked_shares(examples)
    return {
        name: CorpusRecord(pairs=n, examples=examples[name], share=shares[name])
        for name, n in pairs.items()
    }


# Stage 7.


def publish(work: Work) -> None:
    """Moves the finished files into the data directory, the manifest last."""
    if work.manifest.parent.exists():  # another task may have published them
        paths = sorted(work.manifest.parent.iterdir())
        for path in sorted(paths, key=lambda path: path == work.manifest):
            os.replace(path, work.data_dir / path.name)
    # Another task may remove the directory, too, or make its lock file there once more;
    # then it is the one that removes the rest.
    shutil.rmtree(work.directory, ignore_errors=True)


# The size of the vocabulary, and what is refused.


def _with_vocab_size(problem: Problem, data_dir: Path) -> Problem:
    """Returns the problem with the size of its vocabulary chosen if it has none.

    It is that of the directory's data or vocabulary, or else the size that suits the
    number of training pairs, see `vocabulary.proposed_size`.

    Raises:
        UserError: a source has a mistake.
    """
    if problem.vocab_size is not None:
        return problem
    manifest = Manifest.load(Manifest.path(data_dir, problem.data_name))
    if manifest is not None:
        return problem.replace(vocab_size=manifest.vocab_size)
    if (size := vocabulary.size_of_given(problem, data_dir)) is not None:
        return problem.replace(vocab_size=size)
    pairs, characters = 0, set[str]()
    for source, target in problem.pairs("train"):
        pairs += 1
        characters.update(source, target)
    size = vocabulary.proposed_size(pairs, len(characters))
    say(
        f"vocabulary: {size:,} tokens, which suit {pairs:,} training pairs with "
        f"{len(characters):,} different characters: fewer pairs show each token too "
        "seldom, more allow longer ones (--vocab_size gives another size)"
    )
    return problem.replace(vocab_size=size)


def _warn_if_too_large(manifest: Manifest) -> None:
    """Warns if a vocabulary is too large for the training examples."""
    pairs = manifest.examples["train"] // manifest.copies
    tokens: Counter[str] = Counter()
    for side, name in manifest.vocab_files.items():
        tokens[name] += manifest.tokens["train"][side] // manifest.copies
    sizes = {name: manifest.vocab_sizes[s] for s, name in manifest.vocab_files.items()}
    for name, size in sizes.items():
        if name in manifest.given_vocabularies:
            continue
        if warning := vocabulary.too_large(size, pairs, tokens[name]):
            say(warning)


def _refuse_unknown(manifest: Manifest, recipe: Recipe, data_dir: Path) -> None:
    """Refuses to write over a split that the manifest does not list.

    Raises:
        UserError: there is one among the splits to make.
    """
    if unfinished_dir(data_dir, recipe.problem).exists():
        return  # the split may be ours, from a run that was killed while it published
    for split in recipe.sources.keys() - manifest.sources.keys():
        for path in data_dir.glob(f"{recipe.problem}-{split}-?????-of-?????"):
            raise UserError(
                f"{path} is there, and the manifest of '{recipe.problem}' does not "
                f"know it; remove it, or leave out the {split} examples"
            )


def _refuse_others(work: Work) -> None:
    """Refuses to work beside tasks of another division or for other data.

    Raises:
        UserError: there are such tasks.
    """
    for path in work.directory.glob("task-*.lock"):
        # The purpose is empty for a moment, of a task that is about to look at us.
        if path.stem != work.task.name and (
            purpose_of_holder(path) not in (None, "", work.purpose)
        ):
            raise _at_work(work.directory)


def _at_work(directory: Path) -> UserError:
    """Returns the error for a directory in which another run works."""
    return UserError(
        f"another `t2t datagen` is at work in {directory}; wait until it is done"
    )


@contextlib.contextmanager
def _user_errors(data_dir: Path, directory: Path) -> Iterator[None]:
    """Turns the error of a disk that is full or cannot be written into `UserError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"the disk of {data_dir} is full; free some space and run the same "
                f"command again, and it goes on where it stopped (or remove "
                f"{directory})"
            ) from error
        if error.filename is None:
            raise
        raise UserError(f"cannot write {error.filename}: {error.strerror}") from error
