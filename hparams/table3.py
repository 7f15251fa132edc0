r"""The rows of Table 3 between `base` and `big`: base with one change each.

    t2t datagen --problem translate_ende --data_dir data
    t2t train --problem translate_ende --data_dir data \
        --hparams_set base_a_heads_1 --output_dir runs/base_a_heads_1
    t2t evaluate runs/base_a_heads_1 --split dev

The paper trained them for 100,000 steps like base and evaluated them on newstest2013
without checkpoint averaging; the perplexity is per token. In the names of rows (D), 02
stands for 0.2.
"""

from typing import Any, NamedTuple

from t2t_keras.hparam import HParams
from t2t_keras.registry import register_hparams


class Row(NamedTuple):
    """One row: its change of base, and the paper's results.

    Attributes:
        name: name of the hparam set; the letter is the paper's group of rows.
        change: the changed field and its value.
        perplexity: perplexity on newstest2013.
        bleu: BLEU on newstest2013.
        millions: millions of parameters; base's where the paper leaves it blank.
    """

    name: str
    change: dict[str, Any]
    perplexity: float
    bleu: float
    millions: int = 65


ROWS = (
    # (A) Heads; a head's keys and values have d_model / num_heads components.
    Row("base_a_heads_1", {"num_heads": 1}, 5.29, 24.9),
    Row("base_a_heads_4", {"num_heads": 4}, 5.00, 25.5),
    Row("base_a_heads_16", {"num_heads": 16}, 4.91, 25.8),
    Row("base_a_heads_32", {"num_heads": 32}, 5.01, 25.4),
    # (B) The size of the keys alone.
    Row("base_b_keys_16", {"d_k": 16}, 5.16, 25.1, 58),
    Row("base_b_keys_32", {"d_k": 32}, 5.01, 25.4, 60),
    # (C) Depth, width, inner width; eight heads share the width.
    Row("base_c_layers_2", {"num_layers": 2}, 6.11, 23.7, 36),
    Row("base_c_layers_4", {"num_layers": 4}, 5.19, 25.3, 50),
    Row("base_c_layers_8", {"num_layers": 8}, 4.88, 25.5, 80),
    Row("base_c_width_256", {"d_model": 256}, 5.75, 24.5, 28),
    Row("base_c_width_1024", {"d_model": 1024}, 4.66, 26.0, 168),
    Row("base_c_inner_1024", {"d_ff": 1024}, 5.12, 25.4, 53),
    Row("base_c_inner_4096", {"d_ff": 4096}, 4.75, 26.2, 90),
    # (D) Dropout and label smoothing.
    Row("base_d_dropout_00", {"dropout": 0.0}, 5.77, 24.6),
    Row("base_d_dropout_02", {"dropout": 0.2}, 4.95, 25.5),
    Row("base_d_smoothing_00", {"label_smoothing": 0.0}, 4.67, 25.3),
    Row("base_d_smoothing_02", {"label_smoothing": 0.2}, 5.47, 25.7),
    # (E) Learned positions in place of sinusoids.
    Row("base_e_learned_positions", {"position": "learned"}, 4.92, 25.7),
)


def _register(row: Row) -> None:
    """Registers a function with a docstring for a row."""

    def definition() -> HParams:
        return HParams(**row.change)

    (change,) = (f"{field} {value}" for field, value in row.change.items())
    definition.__name__ = row.name
    definition.__doc__ = (
        f"Table 3 ({row.name[5].upper()}), {change}: perplexity {row.perplexity:.2f}, "
        f"BLEU {row.bleu}, {row.millions}M parameters."
    )
    register_hparams(definition)


for _row in ROWS:
    _register(_row)
