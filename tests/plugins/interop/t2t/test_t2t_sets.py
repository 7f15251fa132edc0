"""tensor2tensor's hparam sets, with the values that its source code has."""

import pytest

from t2t_keras import registry

FIELDS = ("norm", "num_layers", "d_model", "d_ff", "num_heads", "batch_tokens")
FIELDS += ("dropout", "attention_dropout")
FIELDS += ("learning_rate", "warmup_steps", "adam_beta2")
SETS = {
    "base_v1": ("post", 6, 512, 2048, 8, 32768, 0.1, 0.0, 1.0, 4000, 0.98),
    "base_v2": ("pre", 6, 512, 2048, 8, 32768, 0.1, 0.1, 2.0, 8000, 0.98),
    "base_v3": ("pre", 6, 512, 2048, 8, 32768, 0.1, 0.1, 2.0, 8000, 0.997),
    "base": ("pre", 6, 512, 2048, 8, 32768, 0.1, 0.1, 2.0, 8000, 0.997),
    "base_single_gpu": ("pre", 6, 512, 2048, 8, 1024, 0.1, 0.1, 0.1, 16000, 0.997),
    "big": ("pre", 6, 1024, 4096, 16, 16384, 0.3, 0.1, 2.0, 8000, 0.997),
    "big_single_gpu": ("pre", 6, 1024, 4096, 16, 2048, 0.1, 0.1, 2.0, 16000, 0.997),
    "big_enfr": ("pre", 6, 1024, 8192, 16, 32768, 0.1, 0.1, 2.0, 8000, 0.997),
    "parsing_base": ("pre", 6, 1024, 2048, 8, 32768, 0.2, 0.2, 2.0, 16000, 0.997),
    "parsing_big": ("pre", 6, 1024, 4096, 16, 16384, 0.1, 0.1, 2.0, 4000, 0.997),
    "small": ("pre", 2, 256, 1024, 4, 4096, 0.1, 0.1, 2.0, 8000, 0.997),
    "tiny": ("pre", 2, 128, 512, 4, 4096, 0.1, 0.1, 2.0, 8000, 0.997),
}
UNSHARED = ("big_enfr", "parsing_base")


@pytest.mark.parametrize("name", SETS)
def test_registered_sets(name):
    hparams = registry.hparams(f"transformer_{name}")
    assert tuple(getattr(hparams, field) for field in FIELDS) == SETS[name]
    assert hparams.share_embeddings == (name not in UNSHARED)
    assert (hparams.position, hparams.bucketing) == ("t2t", "t2t")
    assert hparams.target_space and hparams.train_steps == 250_000
