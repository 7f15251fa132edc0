"""Sets for 0.3 to 3 million sentence pairs: between `news_commentary` and `base`.

Published practice at both ends, and between them our interpolation: fairseq's model
for the 160,000 pairs of IWSLT14 (dropout 0.3) and the paper's for the 4.5 million of
WMT14 (dropout 0.1). The fewer the pairs, the more dropout and the smaller the inner
layer, the batch and the vocabulary, as Sennrich and Zhang (ACL 2019) and Araabi and
Monz (COLING 2020) found. None has been trained to the end here, only for a few steps.
"""

from t2t_keras.hparam import HParams
from t2t_keras.registry import register_hparams


@register_hparams
def pairs_300k() -> HParams:
    r"""0.15 to 0.5 million pairs: fairseq's model for IWSLT14, 28.6 BLEU en-de there.

    The architecture `transformer_iwslt_de_en` of fairseq, half of base's inner width
    and heads, with the settings of its documentation: dropout 0.3, a peak learning rate
    of 0.0005 after 4,000 steps, batches of 4,096 tokens; not its weight decay (0.0001),
    which this package does not have. The BLEU is that of fairseq as lessdl's comparison
    reports it. 50,000 steps are 19 passes over the 267,798 pairs of News Commentary,
    for which `news_commentary` is the set for a night on a CPU and this one the set for
    a GPU. Not trained to the end here.

        t2t datagen --problem translate_text --vocab_size 10000 --data_dir data \
            --train_source train.en --train_target train.de ...
        t2t train --problem translate_text --hparams_set pairs_300k \
            --data_dir data --output_dir runs/mine --save_every 1000 --keep 12
        t2t average --output_dir runs/mine --last 10
        t2t evaluate --output_dir runs/mine
    """
    return HParams(
        d_ff=1024,
        num_heads=4,
        dropout=0.3,
        learning_rate=0.7155,  # 0.7155 * 512 ** -0.5 * 4000 ** -0.5 = 0.0005
        batch_tokens=4096,
        train_steps=50_000,
        compute_dtype="bfloat16",
    )


@register_hparams
def pairs_1m() -> HParams:
    r"""0.5 to 1.5 million pairs: the base model with dropout 0.2 and 16,384 tokens.

    Dropout is half-way, on a logarithmic scale of the pairs, between fairseq's 0.3 for
    160,000 and the paper's 0.1 for 4.5 million; Xia et al. (arXiv:2203.16487) have the
    same 0.2 and 50,000 updates for a model of that size on the 610,000 pairs of WMT16
    en-ro. The batch is two thirds of the paper's, and 6,000 steps of warm-up lower the
    peak to 0.00057, about as the square root of the batch does. 50,000 steps are some
    30 passes over a million pairs. Not trained to the end here.

        t2t datagen --problem translate_text --vocab_size 16000 --data_dir data \
            --train_source train.en --train_target train.de ...
        t2t train --problem translate_text --hparams_set pairs_1m \
            --data_dir data --output_dir runs/mine --save_every 1000 --keep 12
        t2t average --output_dir runs/mine --last 10
        t2t evaluate --output_dir runs/mine
    """
    return HParams(
        dropout=0.2,
        warmup_steps=6000,
        batch_tokens=16_384,
        train_steps=50_000,
        compute_dtype="bfloat16",
    )


@register_hparams
def pairs_3m() -> HParams:
    r"""1.5 to 4 million pairs: the base model with dropout 0.15 and 65,000 steps.

    The paper's batches of 25,000 tokens and its learning rate; 65,000 steps are as many
    passes over three million pairs (some 20) as base's 100,000 over the 4.5 million of
    WMT14. Table 3 (D) has 25.8 BLEU with dropout 0.1 and 25.5 with 0.2 on those. Not
    trained to the end here. From 4 million pairs on, `base`.

        t2t datagen --problem translate_text --vocab_size 32000 --data_dir data \
            --train_source train.en --train_target train.de ...
        t2t train --problem translate_text --hparams_set pairs_3m \
            --data_dir data --output_dir runs/mine --save_every 1000 --keep 12
        t2t average --output_dir runs/mine --last 10
        t2t evaluate --output_dir runs/mine
    """
    return HParams(dropout=0.15, train_steps=65_000, compute_dtype="bfloat16")
