r"""Constituency parsing of the Wall Street Journal (section 6.3 of the paper).

The Penn Treebank is licensed, so the trees are read from files: from the Linguistic
Data Consortium's (LDC) directory, where sections 02 to 21 are for training, 22 for
development and 23 for the test,

    t2t datagen --problem parsing_wsj --data_dir data --treebank treebank_3/parsed/mrg

or from any other directories and files of bracketed trees,

    t2t datagen --problem parsing_wsj --data_dir data --skip_bad_trees \
        --train_trees train.mrg.gz --dev_trees dev.mrg

or, for a sample without these sections, from parts of its files:

    t2t datagen --problem parsing_wsj --data_dir data --treebank wsj_sample \
        --train_sections 0001-0159 --dev_sections 0160-0179 --test_sections 0180-0199

Source and target have separate vocabularies: words on one side, brackets and tags on
the other.
"""

import functools
from collections.abc import Iterator

from t2t_keras.problem import Pair, Problem, Split
from t2t_keras.registry import register_problem

from ..toy import SIZES, corpus, leaves, translate_ende_toy
from .commands import ParsingProblem
from .linearise import SYMBOLS, UNTAGGED_SYMBOLS, linearise
from .task import BracketF1, Trees, brackets
from .tree import parse_tree


@register_problem
def parsing_wsj() -> ParsingProblem:
    """Parsing with tensor2tensor's targets: `S NP NNP /NP VP VBZ /VP . /S`."""
    return ParsingProblem(
        summary="WSJ constituency parsing, trees from files (paper: F1 91.3)",
        vocab_size=16_000,
        shared_vocab=False,
        beam_size=21,
        alpha=0.3,
        extra_length=300,
        text_processor=Trees(symbols=SYMBOLS),
        constraint=brackets,
        metrics=BracketF1(),
        hparams_set="parsing",
    )


@register_problem
def parsing_wsj_notags() -> ParsingProblem:
    """Parsing with the targets of Vinyals et al. (2015): `S NP XX /NP VP XX /VP XX /S`.

    Punctuation, which EVALB leaves out by its tag, is recognized by the words alone,
    which agrees with the Treebank in 99.8% of the sentences of its sample. This also
    holds for the references of `t2t evaluate`; `t2t f1` uses the Treebank's tags.
    """
    return parsing_wsj().replace(
        summary="WSJ constituency parsing without part-of-speech tags",
        text_processor=Trees(symbols=UNTAGGED_SYMBOLS, pos_tags=False),
    )


@register_problem
def parsing_wsj_words() -> ParsingProblem:
    """`parsing_wsj` with a word-level vocabulary: each source word is one token.

    So the i-th source token is the i-th word. With subwords, the position of a word
    depends on how the words before it are split. An out-of-vocabulary word becomes the
    token of a word class, such as `<a-ated>`.
    """
    return parsing_wsj().replace(
        summary="WSJ constituency parsing, each word one token",
        tokenizer="words",
        hparams_set="parsing_next_word",
    )


@register_problem
def parsing_wsj_semi() -> ParsingProblem:
    r"""Semi-supervised parsing with automatically parsed trees: F1 92.7 in the paper.

    The paper uses about 17 million sentences and does not say how it mixes them with
    the Treebank's; here ten silver trees follow each gold one. They are read one by
    one, so their number is not limited by memory.

        t2t datagen --problem parsing_wsj_semi --data_dir data \
            --treebank treebank_3/parsed/mrg --silver_trees silver-*.mrg.gz
    """
    return parsing_wsj().replace(
        summary="WSJ parsing with a parser's own trees (paper: F1 92.7)",
        vocab_size=32_000,
        text_processor=Trees(symbols=SYMBOLS, silver_per_gold=10),
    )


def pairs(split: Split) -> Iterator[Pair]:
    """Yields the English words and the tree of each sentence of a split."""
    for tree, _ in corpus()[split]:
        yield " ".join(leaves(tree)), " ".join(linearise(parse_tree(tree)))


@register_problem
def parsing_toy() -> Problem:
    """English to Penn Treebank constituency trees."""
    return translate_ende_toy().replace(
        summary="English constituency parsing, embedded toy grammar",
        sources={split: functools.partial(pairs, split) for split in SIZES},
        languages=None,
        vocab_size=800,
        shared_vocab=False,
        max_length=128,
        alpha=0.3,
        extra_length=100,
        text_processor=Trees(symbols=SYMBOLS),
        constraint=brackets,
        metrics=BracketF1(),
        hparams_set="tiny",
    )
