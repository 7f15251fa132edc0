"""`t2t attention`: all attention weights of a model for one sentence."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from t2t_keras.blank_text import is_blank
from t2t_keras.cli.checks import require_outputs
from t2t_keras.cli.command import Command, add_run, table, utf8
from t2t_keras.data.atomic_files import open_lines
from t2t_keras.errors import UserError
from t2t_keras.run.config import require_run

if TYPE_CHECKING:
    from t2t_keras.decoding.model_translator import ModelTranslator
    from t2t_keras.model.backend import Tensor


def _attention_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--source", type=utf8, required=True, metavar="TEXT", help="the source sentence"
    )
    parser.add_argument(
        "--target",
        type=utf8,
        metavar="TEXT",
        help="its translation (default: the model's translation)",
    )
    parser.add_argument(
        "--page", required=True, metavar="FILE", help="write the HTML page here"
    )


def _check_attention(args: argparse.Namespace) -> None:
    require_run(args.output_dir)
    require_outputs(args, {"page": [args.page]})


def _attention(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.run.directory import RunDirectory

    from .attention_page import attention_page, pictures

    translator = RunDirectory(args.output_dir).translator(args.checkpoint)
    attention = sentence_attention(translator, args.source, args.target)
    with open_lines(args.page) as file:
        file.write(attention_page(args.source, pictures(*attention)))
    num_layers, num_heads, *_ = attention.cross.shape
    return {
        "page": args.page,
        "layers": num_layers,
        "heads": num_heads,
        "source": attention.source,
        "target": attention.target,
    }


class SentenceAttention(NamedTuple):
    """The tokens and attention weights of one sentence pair; see `AttentionMaps`.

    Attributes:
        source: the S source tokens, which end with EOS.
        target: the T target tokens; row t of the weights predicts token t.
        encoder: weights of the L encoder layers, float32 [L, H, S, S].
        decoder: weights of the L decoder layers, float32 [L, H, T, T].
        cross: weights of the L cross-attention layers, float32 [L, H, T, S].
    """

    source: list[str]
    target: list[str]
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray


def sentence_attention(
    translator: "ModelTranslator", source: str, target: str | None = None
) -> SentenceAttention:
    """Returns all attention weights of a model for one sentence pair.

    Args:
        translator: the model with its tokenizers.
        source: the source text.
        target: the translation; None: the model's translation.

    Raises:
        UserError: the source is blank, the model's translation is empty, or the model
            is an ensemble.
    """
    from t2t_keras.decoding.ensemble import Ensemble

    model = translator.model
    if isinstance(model, Ensemble):
        raise UserError(
            "each model of an ensemble has its own attention; give one of its runs"
        )
    if is_blank(source):
        raise UserError("the source is blank; give a sentence")
    processor = translator.problem.text_processor
    text = processor.preprocess(source, translator.options.raw)
    source_ids = translator.source_tokenizer.encode(text)
    if target is None:
        [[best]] = translator.n_best([source], 1, truncate=True, split_sentences=False)
        target_ids = list(best.ids)
    else:
        target_ids = translator.target_tokenizer.encode(
            processor.preprocess_target(text, target)
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
        _stack_layers(maps.encoder),
        _stack_layers(maps.decoder),
        _stack_layers(maps.cross),
    )


def _stack_layers(weights: "Sequence[Tensor]") -> np.ndarray:
    """Returns the weights [1, H, T, S] of each layer as one array [L, H, T, S]."""
    return np.stack([np.asarray(layer)[0] for layer in weights])


def _show_attention(result: dict[str, Any]) -> str:
    tokens = {side: " ".join(result[side]) for side in ("source", "target")}
    return table(result | tokens)


COMMAND = Command(
    "draw a model's attention weights for a sentence",
    _attention_flags,
    _attention,
    _show_attention,
    uses_tensorflow=True,
    check=_check_attention,
    group="judging a model",
)
