"""Sets for small data and small machines."""

from t2t_keras.hparam import HParams
from t2t_keras.registry import register_hparams


@register_hparams
def tiny() -> HParams:
    """The embedded toy problem in two minutes on two CPU cores, above 95 BLEU.

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
def multi30k() -> HParams:
    r"""Multi30k (29,000 caption pairs) as published: tokenised BLEU 41.0 on test2016.

    The "Transformer-Tiny" of Wu et al., ACL 2021 ("Good for Misconceived Reasons"):
    peak learning rate 0.005 after 2,000 steps, dropout 0.3, 10,000 joint pieces. Theirs
    saw two batches of 4,096 tokens a step; this is one, and reaches 38.6 after 6,000
    steps, 42 minutes on two CPU cores.

        t2t datagen --problem translate_text --vocab_size 10000 --data_dir data \
            --train_source lc_tok/train.en --train_target lc_tok/train.de ...
        t2t train --problem translate_text --hparams_set multi30k --train_steps 6000 \
            --data_dir data --output_dir runs/m30k --save_every 120 --keep 12
        t2t average --output_dir runs/m30k --last 10
        t2t evaluate --output_dir runs/m30k --split test --beam_size 5 --write test
        sacrebleu test.reference -i test.hypothesis -tok none
    """
    return HParams(
        num_layers=4,
        d_model=128,
        d_ff=256,
        num_heads=4,
        dropout=0.3,
        learning_rate=2.53,  # 2.53 * 128 ** -0.5 * 2000 ** -0.5 = 0.005
        warmup_steps=2000,
        batch_tokens=4096,
        train_steps=8000,
    )


@register_hparams
def small_data() -> HParams:
    r"""Multi30k and its like in 20 minutes on two CPU cores: sacreBLEU 36.4.

    On test2016, raw text, with the average of the last ten checkpoints and beam 4. The
    model of `multi30k` with less dropout and a learning rate that falls sooner, for a
    short training, and best with a vocabulary of some 5,000 pieces. Take care with
    smaller batches: with 2,048 tokens at this rate the decoder did not learn to look at
    the source.

        t2t datagen --problem translate_text --vocab_size 5000 --data_dir data \
            --train_source train.en --train_target train.de ...
        t2t train --problem translate_text --hparams_set small_data \
            --data_dir data --output_dir runs/m30k --save_every 120 --keep 12
        t2t average --output_dir runs/m30k --last 10
        t2t evaluate --output_dir runs/m30k --split test
    """
    return multi30k().override(
        dropout=0.2,
        learning_rate=1.75,  # 1.75 * 128 ** -0.5 * 1500 ** -0.5 = 0.004
        warmup_steps=1500,
        train_steps=3600,
    )


@register_hparams
def parsing_small() -> HParams:
    r"""Treebanks of some 20,000 sentences on two CPU cores.

    For CRAFT, 18,913 sentences of 26 words and 64 symbols on the average: an epoch is
    304 steps, so that the 9,000 steps are 30 epochs. A small vocabulary suffices
    for the words, and the attention's dropout takes time on a CPU and is left out.

        t2t datagen --problem parsing_wsj --vocab_size 8000 --data_dir data \
            --skip_bad_trees --train_trees train.mrg.gz --dev_trees dev.mrg
        t2t train --problem parsing_wsj --hparams_set parsing_small \
            --data_dir data --output_dir runs/craft --save_every 300 --keep 12 \
            --eval_every 1500 --eval_sentences 100
        t2t average --output_dir runs/craft --last 10
        t2t evaluate --output_dir runs/craft --split dev
    """
    return HParams(
        num_layers=4,
        d_model=256,
        d_ff=1024,
        num_heads=4,
        dropout=0.2,
        learning_rate=0.62,  # 0.62 * 256 ** -0.5 * 1500 ** -0.5 = 0.001
        warmup_steps=1500,
        batch_tokens=4096,
        train_steps=9000,
        compute_dtype="bfloat16",
    )
