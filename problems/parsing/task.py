"""Text processor, constraint and metrics of parsing problems."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError
from t2t_keras.metrics import CorpusMetric, Metrics
from t2t_keras.problem import Problem, TextProcessor

from .linearise import Brackets, linearise, restore
from .tree import parse_tree, prepare
from .words import treebank_text

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from t2t_keras.decoding.constraint import BatchConstraint
    from t2t_keras.text.tokenizer import Tokenizer

    from .evalb_scores import ReportDict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trees(TextProcessor):
    """The texts of parsing: sentences in, bracketed trees out.

    The user sees bracketed trees, one per line; the model reads words separated by
    spaces and writes tensor2tensor's symbols (see `linearise`). Every output is a tree
    over exactly the words of its source: a malformed target is repaired.

    Attributes:
        symbols: brackets and tags, each a single token in the target's vocabulary.
        pos_tags: whether the symbols have the words' tags; otherwise they have XX.
        silver_per_gold: number of automatically parsed trees that `t2t datagen` mixes
            with each tree of the treebank (`--silver_trees`); 0: none.
    """

    pos_tags: bool = True
    silver_per_gold: int = 0

    splits_raw_text = True
    splits_long_sources = False
    repairs_outputs = True
    aligns_outputs = False
    source_flags = "--treebank or --{split}_trees"

    def preprocess(self, text: str, raw: bool = False) -> str:
        """Returns the words; a raw sentence is split as in the Penn Treebank."""
        return treebank_text(text, raw)

    def preprocess_target(self, source: str, output: str) -> str:
        """Converts a bracketed tree to symbols.

        Raises:
            UserError: it is not a tree over the words of the source.
        """
        if not output.strip():
            return ""
        tree = prepare(parse_tree(output, "target"), "target")
        if tree.words() != source.split(" "):
            raise UserError(f"the target '{output}' has other words than its source")
        return " ".join(linearise(tree, self.pos_tags))

    def postprocess(self, source: str, target: str) -> tuple[str, bool]:
        """Converts symbols to a bracketed tree, and repairs malformed ones."""
        words = [word for word in source.split(" ") if word]
        if not words:
            return "", False
        symbols = target.split()
        repaired = Brackets.from_symbols(self.symbols).repair(words, symbols)
        return restore(words, repaired).format(), repaired != symbols

    def preprocess_graph(self, texts: "tf.Tensor", raw: bool) -> "tf.Tensor":
        """Does what `preprocess` does for texts [B], in the graph."""
        from .graph import treebank_texts

        return treebank_texts(texts, raw)

    def postprocess_graph(
        self, sources: "tf.Tensor", targets: "tf.Tensor"
    ) -> "tf.Tensor":
        """Converts targets [B, n] to trees in the graph.

        The constraint `brackets` must allow the targets, so that only an empty one
        needs repair: see `graph.restore_texts`.
        """
        from .graph import restore_texts

        return restore_texts(sources, targets, self.symbols)


def brackets(problem: Problem, tokenizer: "Tokenizer") -> "BatchConstraint":
    """Returns the constraint that outputs are trees over the words of their sources.

    Raises:
        UserError: the problem's symbols are not brackets, or not single tokens.
    """
    from .balanced_brackets import BracketTokens, for_batch

    tokens = BracketTokens.from_symbols(problem.symbols, tokenizer)
    return lambda texts, max_length: for_batch(tokens, texts, max_length)


@dataclasses.dataclass(frozen=True)
class BracketF1(Metrics):
    """F1 of labelled brackets, as EVALB computes it, in percent."""

    # EVALB's F1 leaves out sentences in error, so it is high for a model that succeeds
    # only on the easiest sentences.
    selection_metric = "f1_errors_as_zero"

    def score(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, float]:
        """Returns F1, and the numbers of sentences that EVALB leaves out of it.

        Returns:
            "f1" and "f1_errors_as_zero", "error_sentences" and "skipped_sentences".
        """
        from .evalb import evaluate_trees

        summary = evaluate_trees(references, outputs).summary()
        return {
            "f1": summary["f1"],
            "f1_errors_as_zero": summary["f1_errors_as_zero"],
            "error_sentences": summary["error"],
            "skipped_sentences": summary["skip"],
        }

    def report(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> "dict[str, ReportDict]":
        """Returns what `t2t f1 --json` prints, under "f1"."""
        from .evalb import evaluate_trees

        return {"f1": evaluate_trees(references, outputs).to_dict()}

    def corpus_metrics(self) -> "tuple[BracketF1Statistics, ...]":
        """Returns EVALB's F1, and F1 with sentences in error as zero."""
        return (
            BracketF1Statistics("f1", errors_as_zero=False),
            BracketF1Statistics("f1_errors_as_zero", errors_as_zero=True),
        )


@dataclasses.dataclass(frozen=True)
class BracketF1Statistics(CorpusMetric):
    """F1 from the numbers of brackets of sentences, see `F1Report.summary`.

    Attributes:
        name: the name in tables.
        errors_as_zero: whether the brackets of sentences in error count.
    """

    name: str
    errors_as_zero: bool

    def statistics(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> "np.ndarray":
        """Returns the numbers of matched, gold and test brackets, [N, 3]."""
        import numpy as np

        from .evalb import evaluate_trees
        from .evalb_scores import ERROR, VALID

        counts = []
        for sentence in evaluate_trees(references, outputs).sentences:
            if sentence.status == VALID:
                counts.append((sentence.matched, sentence.gold, sentence.test))
            elif sentence.status == ERROR and self.errors_as_zero:
                counts.append((0, sentence.gold, sentence.test))
            else:
                counts.append((0, 0, 0))
        return np.array(counts)

    def score(self, statistics: "np.ndarray") -> float:
        """Returns F1 in percent; 0 if nothing matches."""
        from .evalb_scores import bracket_f1

        return bracket_f1(*map(float, statistics))

    def settings(self) -> dict[str, str]:
        """Returns the parameters of EVALB."""
        return {"evalb": "COLLINS"}
