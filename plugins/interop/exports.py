"""The formats of `t2t export` for other programs."""

from typing import Any

from t2t_keras.errors import require_extra
from t2t_keras.export.formats import ExportFormat


def _export(*args: Any, **options: Any) -> int:
    from .hf_marian import export_hf_marian

    return export_hf_marian(*args, **options)


HF_MARIAN = ExportFormat(
    "a Marian model of Hugging Face transformers, with its tokenizer",
    _export,
    lambda path: (
        (path / "model.safetensors").exists() and (path / "config.json").exists()
    ),
    options=("max_source_length", "extra_length"),
    check=lambda: require_extra("marian", "--format hf-marian", "safetensors"),
)
