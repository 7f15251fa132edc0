"""The hparam sets of "Attention Is All You Need".

These names never change meaning.
"""

from t2t_keras.hparam import HParams
from t2t_keras.registry import register_hparams


@register_hparams
def base() -> HParams:
    r"""The paper's base model: 12 hours on 8 P100, 27.3 BLEU en-de, 38.1 en-fr.

    Table 3, first row (perplexity 4.92, 25.8 BLEU on newstest2013, 65 million
    parameters; `table3` has the other rows), and section 5: 100,000 steps of about
    25,000 source and 25,000 target tokens. The published BLEU is on newstest2014, with
    the average of the last 5 checkpoints, written every 10 minutes, beam 4 and alpha
    0.6.

        t2t datagen --problem translate_ende --data_dir data
        t2t train --problem translate_ende --data_dir data \
            --hparams_set base --output_dir runs/base \
            --save_minutes 10
        t2t average runs/base --last 5
    """
    return HParams()


@register_hparams
def big() -> HParams:
    r"""The paper's big model: 3.5 days on 8 P100, 28.4 BLEU en-de.

    Table 3, last row: perplexity 4.33, 26.4 BLEU on newstest2013, 213 million
    parameters; 300,000 steps; average of the last 20 checkpoints.

        t2t datagen --problem translate_ende --data_dir data
        t2t train --problem translate_ende --data_dir data \
            --hparams_set big --output_dir runs/big \
            --save_minutes 10
        t2t average runs/big --last 20
    """
    return HParams(
        d_model=1024, d_ff=4096, num_heads=16, dropout=0.3, train_steps=300_000
    )


@register_hparams
def big_enfr() -> HParams:
    r"""The paper's big model for en-fr, with dropout 0.1: 41.8 BLEU.

    Section 6.1: all else is as in `big`, with a vocabulary of 32,000 tokens.

        t2t datagen --problem translate_enfr --data_dir data
        t2t train --problem translate_enfr --data_dir data \
            --hparams_set big_enfr --output_dir runs/big_enfr \
            --save_minutes 10
        t2t average runs/big_enfr --last 20
    """
    return big().override(dropout=0.1)


@register_hparams
def parsing() -> HParams:
    r"""The paper's parser, 4 layers of width 1024: F1 91.3 on WSJ section 23.

    Section 6.3: all else is as in base, so that d_ff is 2048 and 8 heads have 128
    dimensions each. Dropout (residual and attention) and learning rate were chosen on
    section 22 and are not given in the paper; here they are base's. The authors'
    transformer_parsing_base has 6 layers, 0.2 for both, and 16,000 steps of warm-up to
    the same peak, 4.9e-4 (`--hparams dropout=0.2,attention_dropout=0.2,ffn_dropout=0.1,
    warmup_steps=16000,learning_rate=2`). Decoding: beam 21, alpha 0.3, at most 300
    symbols more than words.

        t2t datagen --problem parsing_wsj --data_dir data \
            --treebank treebank_3/parsed/mrg
        t2t train --problem parsing_wsj --data_dir data \
            --hparams_set parsing --output_dir runs/parsing \
            --save_minutes 10
        t2t average runs/parsing --last 5
        t2t evaluate runs/parsing --split test

    With 17 million automatically parsed sentences, F1 is 92.7: use the problem
    `parsing_wsj_semi` and `--silver_trees`.
    """
    return HParams(num_layers=4, d_model=1024)
