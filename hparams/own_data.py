"""Hparam sets for your own data, by its size.

`tiny` and `small_data` are measured (`docs/results.md`). The others interpolate between
two published settings: fairseq's for the 160,000 pairs of IWSLT14 (dropout 0.3) and the
paper's for the 4.5 million of WMT14 (dropout 0.1). With fewer pairs, dropout is higher,
and inner layer, batch and vocabulary are smaller, as Sennrich and Zhang (ACL 2019) and
Araabi and Monz (COLING 2020) recommend. None of these has been trained here for more
than a few steps.
"""

from t2t_keras.hparam import HParams
from t2t_keras.ranged_hparams import RangedHParams
from t2t_keras.registry import register_hparams, register_ranged_hparams


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
    r"""10,000 to 150,000 pairs: Multi30k in 20 minutes on two cores, sacreBLEU 36.4.

    The score is on test2016, raw text, with the average of the last ten checkpoints and
    beam 4. The model is `multi30k`'s, with less dropout and a learning rate that decays
    earlier, for a short training; a vocabulary of about 5,000 tokens is best.
    Smaller batches may fail: with 2,048 tokens at this learning rate, the decoder did
    not learn to attend to the source.

        t2t datagen --problem translate_text --vocab_size 5000 --data_dir data \
            --train_source train.en --train_target train.de ...
        t2t train --problem translate_text --hparams_set small_data \
            --data_dir data --output_dir runs/m30k --save_every 120 \
            --train_options keep=12
        t2t evaluate runs/m30k --split test
    """
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


@register_hparams
def multi30k() -> HParams:
    r"""Multi30k (29,000 caption pairs) as published: tokenised BLEU 41.0 on test2016.

    The "Transformer-Tiny" of Wu et al., ACL 2021 ("Good for Misconceived Reasons"):
    peak learning rate 0.005 after 2,000 steps, dropout 0.3, a joint vocabulary of
    10,000 tokens, two batches of 4,096 tokens per step. This package reaches 41.0 after
    6,000 steps with `norm=pre` (mean of three seeds), and 40.7 and 39.5 after 8,000
    steps without (`docs/results.md`). Each takes one to two hours on one CPU core.

        t2t datagen --problem translate_text --vocab_size 10000 --data_dir data \
            --train_source lc_tok/train.en --train_target lc_tok/train.de ...
        t2t train --problem translate_text --hparams_set multi30k \
            --hparams compute_dtype=bfloat16,norm=pre --train_steps 6000 \
            --data_dir data --output_dir runs/m30k --save_every 100 \
            --train_options keep=30 --eval_every 1000 --eval_sentences 200
        t2t evaluate runs/m30k --split test --beam_size 5 --alpha 1.4 \
            --tokenize none
    """
    return HParams(
        num_layers=4,
        d_model=128,
        d_ff=256,
        num_heads=4,
        dropout=0.3,
        learning_rate=2.53,  # 2.53 * 128 ** -0.5 * 2000 ** -0.5 = 0.005
        warmup_steps=2000,
        batch_tokens=8192,
        train_steps=8000,
    )


@register_hparams
def news_commentary() -> HParams:
    r"""News Commentary (268,000 pairs) on one CPU core: sacreBLEU 13.4 on newstest2013.

    10,000 steps take two hours at full speed (`docs/results.md`) and are less than four
    epochs; BLEU is still rising then. Layer norm before the sub-layers allows the
    higher learning rate that small batches need.

        t2t datagen --problem translate_text --vocab_size 8000 --data_dir data \
            --train_source train.en.gz --train_target train.de.gz ... \
            --clean "identical,control,letters=0.5,ratio=2.5,duplicates"
        t2t train --problem translate_text --hparams_set news_commentary \
            --data_dir data --output_dir runs/nc --save_every 250 \
            --train_options keep=12,average_last=8
        t2t evaluate runs/nc --split dev
    """
    return HParams(
        num_layers=4,
        d_model=192,
        d_ff=768,
        num_heads=6,
        norm="pre",
        learning_rate=1.5,  # 1.5 * 192 ** -0.5 * 2000 ** -0.5 = 0.0024
        warmup_steps=2000,
        batch_tokens=4096,
        train_steps=10_000,
        compute_dtype="bfloat16",
    )


@register_hparams
def parsing_small() -> HParams:
    r"""Treebanks of some 20,000 sentences on one or two CPU cores: CRAFT, F1 72.

    Only the position of a tag shows which word it belongs to, and the model must learn
    that first. With layer norm before the sub-layers and many small updates it does so
    within 2,000 steps; with post-norm and batches of 4,096 tokens it did not within
    2,500. Then the model overfits and makes errors at words of several tokens. A second
    training therefore has more dropout, and BPE-dropout, which occasionally splits any
    word into several tokens. A wide beam corrects some of the remaining errors.

    CRAFT has 18,913 sentences of 26 words and 64 symbols on average; an epoch of the
    first training is 612 steps, two minutes on one core.

        t2t datagen --problem parsing_wsj --data_dir data --skip_bad_trees \
            --train_trees train.mrg.gz --dev_trees dev.mrg
        t2t train --problem parsing_wsj --hparams_set parsing_small \
            --data_dir data --output_dir runs/craft --train_steps 15281
        t2t train --problem parsing_wsj --hparams_set parsing_small \
            --hparams dropout=0.2,learning_rate=0.75,bpe_dropout=0.1 \
            --init_from runs/craft --data_dir data --output_dir runs/craft2 \
            --train_steps 19304 --save_every 250 --train_options keep=14
        t2t evaluate runs/craft2 --split dev
    """
    return HParams(
        num_layers=4,
        d_model=128,
        d_ff=512,
        num_heads=4,
        norm="pre",
        learning_rate=1.5,  # 1.5 * 128 ** -0.5 * 1000 ** -0.5 = 0.0042
        warmup_steps=1000,
        batch_tokens=2048,
        train_steps=15_000,
        compute_dtype="bfloat16",
    )


@register_ranged_hparams
def small_data_range(rhp: RangedHParams) -> None:
    """Up to 150,000 pairs: regularization, learning rate and batch, around small_data.

    Sennrich and Zhang (ACL 2019) and Araabi and Monz (COLING 2020) found these to
    matter with few pairs.
    """
    rhp.set_float("dropout", 0.1, 0.4)
    rhp.set_float("label_smoothing", 0.0, 0.3)
    rhp.set_discrete("bpe_dropout", [0.0, 0.05, 0.1])
    rhp.set_float("learning_rate", 0.5, 2.5, scale=rhp.LOG_SCALE)
    rhp.set_discrete("batch_tokens", [2048, 4096, 8192])
