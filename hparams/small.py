"""Hparam sets for training on small machines, with their results."""

from t2t_keras.hparam import HParams
from t2t_keras.registry import register_hparams


@register_hparams
def multi30k() -> HParams:
    r"""Multi30k (29,000 caption pairs) as published: tokenised BLEU 41.0 on test2016.

    The "Transformer-Tiny" of Wu et al., ACL 2021 ("Good for Misconceived Reasons"):
    peak learning rate 0.005 after 2,000 steps, dropout 0.3, a joint vocabulary of
    10,000 tokens, two batches of 4,096 tokens per step. This package reaches 40.7 and
    39.5 with it (`docs/results.md`), and 41.0 with `multi30k_pre`.

        t2t datagen --problem translate_multi30k --data_dir data
        t2t train --problem translate_multi30k --hparams_set multi30k \
            --hparams compute_dtype=bfloat16 --data_dir data \
            --output_dir runs/multi30k --save_every 100
        t2t evaluate runs/multi30k
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
def multi30k_pre() -> HParams:
    r"""`multi30k` with norm=pre, in bfloat16: 41.1 on test2016 (mean of 3 seeds: 41.0).

    6,000 steps take one to two hours on one CPU core.

        t2t datagen --problem translate_multi30k --data_dir data
        t2t train --problem translate_multi30k --hparams_set multi30k_pre \
            --data_dir data --output_dir runs/multi30k --save_every 100 --seed 1
        t2t evaluate runs/multi30k
    """
    return multi30k().override(norm="pre", compute_dtype="bfloat16", train_steps=6000)


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
            --keep 12 --average_last 8
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
            --train_steps 19304 --save_every 250 --keep 14
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
