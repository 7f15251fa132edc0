"""The sets of "Attention Is All You Need". These names never change meaning."""

from t2t_keras.hparam import HParams
from t2t_keras.registry import register_hparams


@register_hparams
def base() -> HParams:
    r"""The paper's base model: 12 hours on 8 P100, 27.3 BLEU en-de, 38.1 en-fr.

    Table 3, first row, and section 5: 100,000 steps of about 25,000 source and 25,000
    target tokens. The published figures are of the average of the last 5 checkpoints,
    written every 10 minutes, with beam 4 and alpha 0.6, on newstest2014.

        t2t datagen --problem translate_ende --data_dir data
        t2t train --problem translate_ende --data_dir data \
            --hparams_set base --output_dir runs/base
        t2t average --output_dir runs/base --last 5
    """
    return HParams()


@register_hparams
def big() -> HParams:
    r"""The paper's big model: 3.5 days on 8 P100, 28.4 BLEU en-de.

    Table 3, last row: 300,000 steps; average of the last 20 checkpoints. For en-fr the
    paper takes dropout 0.1 instead (`--hparams dropout=0.1`) and reports 41.8.

        t2t datagen --problem translate_ende --data_dir data
        t2t train --problem translate_ende --data_dir data \
            --hparams_set big --output_dir runs/big
        t2t average --output_dir runs/big --last 20
    """
    return HParams(
        d_model=1024, d_ff=4096, num_heads=16, dropout=0.3, train_steps=300_000
    )


@register_hparams
def parsing() -> HParams:
    r"""The paper's parser, 4 layers of width 1024: F1 91.3 on WSJ section 23.

    Section 6.3: all else as base, which leaves d_ff 2048 and 8 heads of 128. Dropout
    and learning rate were chosen on section 22 and are not printed in the paper; those
    here are base's. Decoding: beam 21, alpha 0.3, at most 300 symbols more than words.

        t2t datagen --problem parsing_wsj --data_dir data --train_trees wsj-02-21.mrg \
            --dev_trees wsj-22.mrg --test_trees wsj-23.mrg
        t2t train --problem parsing_wsj --data_dir data \
            --hparams_set parsing --output_dir runs/parsing
        t2t evaluate --output_dir runs/parsing --split test
    """
    return HParams(num_layers=4, d_model=1024)
