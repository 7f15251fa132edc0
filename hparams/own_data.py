"""Hparam sets for your own data, by its size.

`tiny` and `small_data` are measured (`docs/results.md`). The others interpolate between
two published settings: fairseq's for the 160,000 pairs of IWSLT14 (dropout 0.3) and the
paper's for the 4.5 million of WMT14 (dropout 0.1). With fewer pairs, dropout is higher,
and inner layer, batch and vocabulary are smaller, as Sennrich and Zhang (ACL 2019) and
Araabi and Monz (COLING 2020) recommend. None of these has been trained here for more
than a few steps.
"""

from t2t_keras.hparam import HParams
from t2t_keras.registry import register_hparams


@register_hparams
def tiny() -> HParams:
    """10,000 short pairs, as in the toy problem: a few minutes on two CPU cores.

    make demo
    """
    return HParams(
        num_layers=2,
        d_model=128,
        d_ff=512,
        num_heads=4,
        warmup_steps=400,
        batch_tokens=2048,
        train_steps=1200,
    )


@register_hparams
def small_data() -> HParams:
    r"""10,000 to 150,000 pairs: Multi30k in half an hour on two cores, sacreBLEU 36.3.

    The score is on test2016, raw text, with the average of the last ten checkpoints and
    beam 4. The model is `multi30k`'s, with less dropout and a learning rate that decays
    earlier, for a short training; a vocabulary of about 5,000 tokens is best.
    Smaller batches may fail: with 2,048 tokens at this learning rate, the decoder did
    not learn to attend to the source.

        t2t datagen --problem translate_text --vocab_size 5000 --data_dir data \
            --train_source train.en --train_target train.de ...
        t2t train --problem translate_text --hparams_set small_data \
            --data_dir data --output_dir runs/m30k --save_every 120 \
            --keep 12
        t2t evaluate runs/m30k --split test
    """
    from .small import multi30k

    return multi30k().override(
        dropout=0.2,
        learning_rate=1.75,  # 1.75 * 128 ** -0.5 * 1500 ** -0.5 = 0.004
        warmup_steps=1500,
        batch_tokens=4096,
        train_steps=3600,
    )


@register_hparams
def pairs_300k() -> HParams:
    r"""0.15 to 0.5 million pairs: fairseq's model for IWSLT14, 28.6 BLEU en-de there.

    This is fairseq's architecture `transformer_iwslt_de_en`, with half of base's inner
    width and heads, and the settings of its documentation: dropout 0.3, a peak learning
    rate of 0.0005 after 4,000 steps, batches of 4,096 tokens; only its weight decay
    (0.0001) is left out. The BLEU is fairseq's, as lessdl's comparison reports it.
    50,000 steps are 19 epochs of the 267,798 pairs of News Commentary, for which
    `news_commentary` suits a CPU and this set a GPU. It was not trained to the end
    here.

        t2t datagen --problem translate_text --vocab_size 10000 --data_dir data \
            --train_source train.en --train_target train.de ...
        t2t train --problem translate_text --hparams_set pairs_300k \
            --data_dir data --output_dir runs/mine
        t2t evaluate runs/mine
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

    On a logarithmic scale of the number of pairs, dropout is half-way between fairseq's
    0.3 for 160,000 and the paper's 0.1 for 4.5 million; Xia et al. (arXiv:2203.16487)
    also use 0.2 and 50,000 updates for a model of that size on the 610,000 pairs of
    WMT16 en-ro. The batch is two thirds of the paper's, and 6,000 steps of warm-up
    lower the peak to 0.00057, about in proportion to the square root of the batch.
    50,000 steps are some 30 epochs of a million pairs. It was not trained to the end
    here.

        t2t datagen --problem translate_text --vocab_size 16000 --data_dir data \
            --train_source train.en --train_target train.de ...
        t2t train --problem translate_text --hparams_set pairs_1m \
            --data_dir data --output_dir runs/mine
        t2t evaluate runs/mine
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

    Batches of 25,000 tokens and the learning rate are the paper's; 65,000 steps are as
    many epochs of three million pairs (some 20) as base's 100,000 of the 4.5 million of
    WMT14, on which Table 3 (D) has 25.8 BLEU with dropout 0.1 and 25.5 with 0.2. It was
    not trained to the end here. From 4 million pairs on, use `base`.

        t2t datagen --problem translate_text --vocab_size 32000 --data_dir data \
            --train_source train.en --train_target train.de ...
        t2t train --problem translate_text --hparams_set pairs_3m \
            --data_dir data --output_dir runs/mine
        t2t evaluate runs/mine
    """
    return HParams(dropout=0.15, train_steps=65_000, compute_dtype="bfloat16")
