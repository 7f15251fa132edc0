"""The record of hyper-parameters: its values, its overrides, its errors."""

import pytest
from helpers.errors import refused

from t2t_keras import HParams, registry


def test_base_is_the_papers_base():
    base = registry.hparams("base")
    assert base.num_layers == 6
    assert (base.d_model, base.d_ff, base.num_heads) == (512, 2048, 8)
    assert (base.key_size, base.value_size) == (64, 64)
    assert (base.norm, base.position) == ("post", "sinusoidal")
    assert base.share_embeddings
    assert (base.dropout, base.label_smoothing) == (0.1, 0.1)
    assert (base.attention_dropout, base.ffn_dropout) == (0, 0)
    assert (base.warmup_steps, base.learning_rate) == (4000, 1)
    assert (base.adam_beta1, base.adam_beta2, base.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (base.batch_tokens, base.train_steps) == (25_000, 100_000)


def test_parsing_is_the_papers_parser():
    changed = registry.hparams("base").difference(registry.hparams("parsing"))
    assert changed == {"num_layers": (6, 4), "d_model": (512, 1024)}
    assert registry.hparams("parsing").key_size == 128


def test_parse_takes_each_fields_type():
    hparams = HParams().parse(
        "dropout=0.2, num_layers=4,norm=pre,share_embeddings=false,"
        "learning_rate=1,batch_tokens=4e3,"
    )
    assert hparams.dropout == 0.2
    assert (hparams.num_layers, hparams.batch_tokens) == (4, 4000)
    assert type(hparams.batch_tokens) is int
    assert type(hparams.learning_rate) is float
    assert hparams.norm == "pre"
    assert hparams.share_embeddings is False
    assert HParams().parse("") == HParams()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("dropuot=0.2", "no option 'dropuot'; did you mean 'dropout'"),
        ("zzz=1", "no option 'zzz'$"),
        ("self=1", "no option 'self'$"),
        ("dropout", "'dropout' is not key=value"),
        ("dropout=[0.1,d_k=2", r"'dropout=\[0.1,d_k=2' has a \[ without \]"),
        ("dropout=0.1,dropout=0.2", "'dropout' is given twice"),
        ("num_layers=2.5", "num_layers must be an integer, not '2.5'"),
        ("dropout=much", "dropout must be a finite number, not 'much'"),
        ("learning_rate=nan", "learning_rate must be a finite number"),
        ("share_embeddings=perhaps", "share_embeddings must be true or false"),
        ("norm=middle", "norm must be one of post, pre, not 'middle'"),
        ("num_heads=7", "d_model 512 is not divisible by num_heads 7"),
        ("d_model=511,num_heads=7", "must be even"),
        ("dropout=1", "dropout must be at least 0 and below 1"),
        ("num_layers=0", "num_layers must be at least 1"),
        ("d_k=-1", "d_k must be at least 0"),
        ("adam_epsilon=0", "adam_epsilon must be above 0"),
        ("optimizer=sgd", "optimizer must be one of adam, adamw.*, not 'sgd'"),
        ("optimizer=adamw", "optimizer 'adamw' needs weight_decay above 0"),
        ("weight_decay=0.1", "weight_decay needs optimizer 'adamw', not 'adam'"),
        ("jit_compile=true,bucketing=exact", "needs bucketing 'static' or 'packed'"),
    ],
)
def test_mistakes_in_overrides(overrides, message):
    refused(message, HParams().parse, overrides)
