"""Writes the manifest of new data."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_keras.data.cleaning import reasons
from t2t_keras.data.encode_splits import SplitPart
from t2t_keras.data.manifest import (
    CorpusRecord,
    Counts,
    DataPlan,
    Manifest,
    read_counts,
)
from t2t_keras.data.mixture import Mixture
from t2t_keras.data.raw_texts import text_paths
from t2t_keras.data.record_index import index_sha256
from t2t_keras.data.sources import guessed_languages
from t2t_keras.data.write_shards import read_lengths
from t2t_keras.errors import UserError
from t2t_keras.files.json_files import sha256, write_json
from t2t_keras.problem import SIDES, SPLITS, Side, Source, Split
from t2t_keras.text.tokenizer import load_tokenizer


def write_manifest(
    plan: DataPlan,
    counts: Counts,
    dropped: Mapping[Split, Counter[str]],
    by_split: Mapping[Split, Sequence[SplitPart]],
) -> None:
    """Writes the manifest of the new and of the earlier splits.

    Args:
        plan: what was made.
        counts: the number of pairs by split and corpus.
        dropped: the number of examples that were dropped, by split and reason.
        by_split: what was encoded of each split.

    Raises:
        UserError: no training pair is left, or the weights of a mixture do not suit.
    """
    earlier = plan.earlier
    left_out = read_counts(plan.directory / "left_out.json")
    fields = _split_fields(plan, counts, dropped, left_out)
    fields["single_sentences"] = _single_sentence_shares(by_split)
    if not (earlier or fields["examples"]["train"]):
        raise UserError(
            f"not one training pair of {sum(counts['train'].values()):,} is left: "
            f"dropped were {fields['dropped']['train']}; drop fewer (--clean, "
            "--max_length)"
        )
    if earlier:
        for name, values in fields.items():
            merged = getattr(earlier, name) | values
            fields[name] = {split: merged[split] for split in SPLITS if split in merged}
    files = plan.vocabularies
    manifest = Manifest(
        **vars(plan.config),
        vocab_files={side: path.name for side, path in files.items()},
        vocab_sizes={s: load_tokenizer(path).vocab_size for s, path in files.items()},
        vocab_sha256={side: sha256(path) for side, path in files.items()},
        languages=_languages(plan),
        license=plan.problem.license or (earlier.license if earlier else ""),
        **fields,
    )
    write_json(plan.manifest_path, dataclasses.asdict(manifest), with_checksum=True)


def _split_fields(
    plan: DataPlan,
    counts: Counts,
    dropped: Mapping[Split, Counter[str]],
    left_out: Counts,
) -> dict[str, Any]:
    """Returns the fields of the manifest that have a value for each new split."""
    names = ("examples", "dropped", "tokens", "corpora", "text_sha256", "index_sha256")
    fields: dict[str, Any] = {name: {} for name in names}
    for split in plan.splits:
        source = plan.problem.sources[split]
        tables = read_lengths(plan, split)
        by_reason = {r: dropped[split][r] for r in reasons(plan.problem.cleaning)}
        fields["examples"][split] = sum(map(len, tables))
        fields["index_sha256"][split] = index_sha256(tables)
        fields["tokens"][split] = {
            side: sum(int(table[:, column].sum()) for table in tables)
            for column, side in enumerate(SIDES, start=1)
        }
        fields["dropped"][split] = by_reason | left_out[split]
        if split != "train":
            texts = text_paths(plan.done, plan.problem.data_name, split)
            fields["text_sha256"][split] = [sha256(path) for path in texts]
        if records := corpus_records(source, counts[split], tables):
            fields["corpora"][split] = records
    return fields


def corpus_records(
    source: Source, counts: Mapping[str, int], tables: Sequence[np.ndarray]
) -> dict[str, CorpusRecord]:
    """Returns what the manifest has of each corpus of a mixture.

    Args:
        source: the source of the split; there are no records unless it is a mixture.
        counts: the number of pairs of each corpus.
        tables: see `read_lengths`.
    """
    if not isinstance(source, Mixture):
        return {}
    corpus_ids = np.concatenate([table[:, 3] for table in tables])
    num_examples = np.bincount(corpus_ids, minlength=len(counts)).tolist()
    examples = dict(zip(counts, num_examples, strict=True))
    shares = source.checked_shares(examples)
    records = {}
    for name, pairs in counts.items():
        records[name] = CorpusRecord(
            pairs=pairs, examples=examples[name], share=shares[name]
        )
    return records


def _languages(plan: DataPlan) -> tuple[str, str] | None:
    """Returns the languages of the problem or of earlier data, else guesses them."""
    languages = plan.problem.data_languages
    if languages is None and plan.earlier:
        languages = plan.earlier.languages
    metrics = plan.problem.metrics
    has_texts = metrics is None or hasattr(metrics, "languages")
    if languages is None and has_texts:
        for split in reversed(plan.splits):  # the last splits are shorter and cleaner
            languages = languages or guessed_languages(plan.problem.sources[split])
    return languages


def _single_sentence_shares(
    by_split: Mapping[Split, Sequence[SplitPart]],
) -> dict[Split, dict[Side, float]]:
    """Returns for each split and side the share of examples of one sentence.

    Repeated examples count, even if they are dropped.
    """
    shares: dict[Split, dict[Side, float]] = {}
    for split, parts in by_split.items():
        num_examples = 0
        counts = Counter[str]()
        for state in (part.load_state() for part in parts):
            num_examples += state.pairs - sum(state.dropped.values())
            counts += Counter(state.single_sentences)
        if num_examples:
            shares[split] = {s: round(counts[s] / num_examples, 6) for s in SIDES}
    return shares
