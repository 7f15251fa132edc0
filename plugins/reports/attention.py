"""The command that draws a model's attention weights: `attention`."""

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from t2t_keras.cli.checks import require_outputs
from t2t_keras.cli.command import Command, add_run, table, utf8
from t2t_keras.data.files import open_lines
from t2t_keras.errors import UserError
from t2t_keras.problem import is_blank
from t2t_keras.run.config import require_run

if TYPE_CHECKING:
    from t2t_keras.decoding.translator import Translator


def _attention_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--source", type=utf8, required=True, metavar="TEXT", help="a sentence"
    )
    parser.add_argument(
        "--target",
        type=utf8,
        metavar="TEXT",
        help="its translation (default: the model's own)",
    )
    parser.add_argument(
        "--write", required=True, metavar="FILE", help="the HTML page to write"
    )


def _check_attention(args: argparse.Namespace) -> None:
    require_run(args.output_dir)
    require_outputs(args, {"write": [args.write]})


def _attention(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.run.directory import RunDirectory

    from .attention_page import attention_page, pictures

    translator = RunDirectory(args.output_dir).translator(args.checkpoint)
    found = sentence_attention(translator, args.source, args.target)
    with open_lines(args.write) as file:
        file.write(attention_page(args.source, pictures(*found)))
    layers, heads, *_ = found.cross.shape
    shape = {"layers": layers, "heads": heads}
    return {
        "write": args.write,
        **shape,
        "source": found.source,
        "target": found.target,
    }


class SentenceAttention(NamedTuple):
    """The attention weights of one pair, with its tokens; see `AttentionMaps`.

    Attributes:
        source: the S source tokens, EOS last.
        target: the T target tokens; row t of the weights predicts token t.
        encoder: float32 [L, H, S, S], for L layers.
        decoder: float32 [L, H, T, T]
        cross: float32 [L, H, T, S]
    """

    source: list[str]
    target: list[str]
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray


def sentence_attention(
    translator: "Translator", source: str, target: str | None = None
) -> SentenceAttention:
    """Returns all attention weights of a model for one pair.

    Args:
        translator: the model with its tokenizers.
        source: a text.
        target: its translation; None: the model's own.

    Raises:
        UserError: the source is blank, the model's own translation is empty, or the
            model is an ensemble.
    """
    from t2t_keras.decoding.ensemble import Ensemble

    model = translator.model
    if isinstance(model, Ensemble):
        raise UserError("an ensemble has several attentions; give one of its runs")
    if is_blank(source):
        raise UserError("the source is blank; give a sentence")
    form = translator.problem.text_processor
    text = form.preprocess(source, translator.options.raw)
    source_ids = translator.source_tokenizer.encode(text)
    if target is None:
        found = translator.n_best([source], 1, truncate=True, split_sentences=False)
        target_ids = list(found[0][0].ids)
    else:
        target_ids = translator.target_tokenizer.encode(
            form.preprocess_target(text, target)
        )
    if not target_ids:
        raise UserError("the model's translation is empty; give a target")
    maps = model.attention_maps(
        np.array([source_ids], np.int32),
        np.array([target_ids], np.int32),
    )
    return SentenceAttention(
        [translator.source_tokenizer.pieces[i] for i in source_ids],
        [translator.target_tokenizer.pieces[i] for i in target_ids],
        *(np.stack([np.asarray(layer)[0] for layer in kind]) for kind in maps),
    )


COMMAND = Command(
    "draw a model's attention weights for a sentence",
    _attention_flags,
    _attention,
    lambda result: table(
        {k: " ".join(v) if isinstance(v, list) else v for k, v in result.items()}
    ),
    uses_tensorflow=True,
    check=_check_attention,
)
