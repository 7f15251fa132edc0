"""`t2t attention`: all attention weights of a model for one sentence, on a page."""

import base64
import dataclasses
import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from t2t_keras.cli.command import (
    REQUIRED,
    CheckpointFlags,
    Command,
    CommandResult,
    RunFlags,
    quoted,
)
from t2t_keras.cli.lines import require_outputs
from t2t_keras.console import say_page, table
from t2t_keras.errors import UserError, short_repr
from t2t_keras.files.atomic import open_lines
from t2t_keras.options import option
from t2t_keras.pages import templates
from t2t_keras.run.config import require_run
from t2t_keras.text.sentences import is_blank

if TYPE_CHECKING:
    import numpy as np

    from t2t_keras.decoding.graph_engine import ModelTranslator
    from t2t_keras.model.backend import Tensor


class SentenceAttention(NamedTuple):
    """The tokens and attention weights of one sentence pair; see `AttentionMaps`.

    Attributes:
        source: the S source tokens, which end with EOS.
        target: the T target tokens; row t of the weights predicts token t.
        encoder: weights of the L encoder layers, float32 [L, H, S, S].
        decoder: weights of the L decoder layers, float32 [L, H, T, T].
        cross: weights of the L cross-attention layers, float32 [L, H, T, S].
        source_text: the source as users see it.
        target_text: the target as users see it.
    """

    source: list[str]
    target: list[str]
    encoder: "np.ndarray"
    decoder: "np.ndarray"
    cross: "np.ndarray"
    source_text: str
    target_text: str

    def __repr__(self) -> str:
        layers, heads, *_ = self.cross.shape
        source, target = map(short_repr, (self.source_text, self.target_text))
        return f"SentenceAttention({source}, {target}, layers={layers}, heads={heads})"

    def _repr_html_(self) -> str:
        """Returns the page for a notebook, in a frame that keeps its style apart."""
        page = html.escape(attention_page(self))
        return f'<iframe srcdoc="{page}" style="{_FRAME}"></iframe>'

    def save(self, path: str | Path) -> None:
        """Writes the HTML page that shows the weights.

        Raises:
            UserError: no layer of the model has weights.
        """
        page = attention_page(self)
        with open_lines(path) as file:
            file.write(page)


_FRAME = "width: 100%; height: 640px; border: 0"


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
    import numpy as np

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
        target = best.text
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

    def stacked(layers: "Sequence[Tensor]") -> np.ndarray:
        """Returns the weights [1, H, T, S] of each layer as one array [L, H, T, S]."""
        return np.stack([np.asarray(layer)[0] for layer in layers])

    return SentenceAttention(
        [translator.source_tokenizer.pieces[i] for i in source_ids],
        [translator.target_tokenizer.pieces[i] for i in target_ids],
        stacked(maps.encoder),
        stacked(maps.decoder),
        stacked(maps.cross),
        source,
        target,
    )


class Picture(NamedTuple):
    """The attention weights of one kind of layer, with the tokens.

    Attributes:
        title: the name of its button.
        rows: labels of the R queries.
        columns: labels of the C keys.
        weights: [L, H, R, C], from 0 to 1.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    weights: "np.ndarray"

    def drawn(self) -> dict[str, object]:
        """Returns what attention_view.html writes, and attention.js reads.

        A byte for each weight is precise enough for a colour and two decimals.
        """
        import numpy as np

        num_layers, num_heads, *_ = self.weights.shape
        levels = np.round(255 * np.clip(self.weights, 0, 1)).astype(np.uint8)
        return {
            "title": self.title,
            "rows": self.rows,
            "columns": self.columns,
            "layers": num_layers,
            "heads": num_heads,
            "weights": base64.b64encode(levels.tobytes()).decode(),
        }


def pictures(attention: SentenceAttention) -> list[Picture]:
    """Returns what a page shows of a sentence pair, cross-attention first.

    A model may have layers without weights, such as average attention; they are left
    out.
    """
    source = attention.source
    target = attention.target
    decoder_inputs = ["(start)", *target[:-1]]
    candidates = [
        Picture("cross", target, source, attention.cross),
        Picture("encoder", source, source, attention.encoder),
        Picture("decoder", target, decoder_inputs, attention.decoder),
    ]
    shown = []
    for picture in candidates:
        if picture.weights.shape[2:] == (len(picture.rows), len(picture.columns)):
            shown.append(picture)
    return shown


def attention_page(attention: SentenceAttention) -> str:
    """Returns an HTML page with the attention weights of a sentence pair.

    Args:
        attention: the tokens of the pair, and the weights.

    Raises:
        UserError: no layer of the model has weights.
    """
    shown = pictures(attention)
    if not shown:
        raise UserError("no layer of the model has attention weights to draw")
    page = templates(Path(__file__).parent).get_template("attention.html")
    drawn = [picture.drawn() for picture in shown]
    return page.render(attention=attention, pictures=drawn)


@dataclasses.dataclass(kw_only=True)
class Attention(RunFlags, CheckpointFlags, Command):
    """Draws a model's attention weights for a sentence."""

    summary = "draw a model's attention weights for a sentence"
    heading = "judging a model"
    waiting = "computing the attention"

    source: str = option(REQUIRED, "the source sentence", metavar="TEXT", is_text=True)
    target: str | None = option(
        None,
        "its translation (default: the model's translation)",
        metavar="TEXT",
        is_text=True,
    )
    page: str = option(REQUIRED, "write the HTML page here", metavar="FILE")

    weights = staticmethod(sentence_attention)

    def needs_tensorflow(self) -> bool:
        """Needs it to compute the weights."""
        return True

    def check(self) -> None:
        """Refuses a path that is not a run, and a page that cannot be written."""
        require_run(self.output_dir)
        require_outputs(self, {"page": [self.page]})

    def run(self) -> CommandResult:
        """Writes the page; returns the tokens and the number of pictures."""
        from t2t_keras.run.directory import RunDirectory

        translator = RunDirectory(self.output_dir).translator(self.checkpoint)
        attention = sentence_attention(translator, self.source, self.target)
        attention.save(self.page)
        say_page(self.page)
        num_layers, num_heads, *_ = attention.cross.shape
        return {
            "page": self.page,
            "layers": num_layers,
            "heads": num_heads,
            "source": attention.source,
            "target": attention.target,
        }

    def show(self, result: CommandResult) -> str:
        """Formats the numbers of layers and heads, and the tokens."""
        rows = {name: result[name] for name in ("layers", "heads")}
        for side in ("source", "target"):
            rows[side] = " ".join(result[side])
        return table(rows)

    def next_command(self) -> str:
        """Returns the command that writes the page of the run."""
        return f"t2t page {quoted(self.output_dir)}"


COMMAND = Attention
