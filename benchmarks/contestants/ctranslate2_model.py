"""CTranslate2, with random weights."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.model_spec import LayerSpec, visit_spec
from workload import EOS, PAD, Workload


def uses_gpu() -> bool:
    """Returns whether CTranslate2 has a GPU."""
    return bool(ctranslate2.get_cuda_device_count())


def search(work: Workload, beam_size: int, steps: int) -> Callable[[], None]:
    """Returns a translation of all sentences as one batch."""
    with tempfile.TemporaryDirectory() as folder:
        _save(work, Path(folder))
        translator = ctranslate2.Translator(
            folder,
            device="cuda" if uses_gpu() else "cpu",
            compute_type=work.hparams.compute_dtype if uses_gpu() else "float32",
        )
    source = work.ids(0).astype(str).tolist()

    def run() -> None:
        outputs = translator.translate_batch(
            source,
            beam_size=beam_size,
            length_penalty=0.6,
            min_decoding_length=steps,
            max_decoding_length=steps,
            max_batch_size=0,
            return_end_token=True,
        )
        assert all(len(output.hypotheses[0]) >= steps for output in outputs)

    return run


def _save(work: Workload, folder: Path) -> None:
    """Writes a model with all weights that it must have, and so without biases."""
    hparams = work.hparams
    spec = TransformerSpec.from_config(
        hparams.num_layers, hparams.num_heads, pre_norm=False
    )
    rng = np.random.default_rng(0)

    def fill(layer: LayerSpec, name: str, value: object) -> None:
        if value is None:
            shape = _shape(work, name)
            weights = rng.normal(0.0, hparams.d_model**-0.5, shape)
            setattr(layer, name.rpartition("/")[2], weights.astype(np.float32))

    visit_spec(spec, fill)
    tokens = [str(token) for token in range(work.padded_vocab_size)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.eos_token = str(EOS)
    spec.config.bos_token = spec.config.decoder_start_token = str(PAD)
    spec.config.unk_token = str(PAD)
    spec.validate()
    spec.save(folder)


def _shape(work: Workload, name: str) -> tuple[int, ...]:
    """Returns the shape of a weight, such as "decoder/layer_0/ffn/linear_1/weight"."""
    d_model = work.hparams.d_model
    d_ff = work.hparams.d_ff
    shapes = {
        "gamma|beta": (d_model,),
        "embeddings|projection": (work.padded_vocab_size, d_model),
        "ffn/linear_0": (d_ff, d_model),
        "ffn/linear_1": (d_model, d_ff),
        "self_attention/linear_0": (3 * d_model, d_model),  # queries, keys, values
        "/attention/linear_1": (2 * d_model, d_model),  # keys and values
        "attention/linear": (d_model, d_model),
    }
    return next(shape for part, shape in shapes.items() if re.search(part, name))
