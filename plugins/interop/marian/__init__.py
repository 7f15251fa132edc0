"""Models of Marian, in its own files and in those of Hugging Face transformers.

`files` reads Marian's files, `transformers` those of transformers, with `torch_files`
for those that PyTorch has saved, and `transformers_export` writes them. Both fill the
`model`; `vocabulary` has its tokens and their tokenizer, and `run` writes a run
directory. This file registers the format of `t2t export`.
"""

from pathlib import Path
from typing import Any

from t2t_keras.errors import require_extra
from t2t_keras.exporting.formats import ExportFormat


def _export_hf_marian(*args: Any, **options: Any) -> int:
    from .transformers_export import export_hf_marian

    return export_hf_marian(*args, **options)


def _is_hf_marian(path: Path) -> bool:
    return (path / "model.safetensors").exists() and (path / "config.json").exists()


HF_MARIAN = ExportFormat(
    "a Marian model of Hugging Face transformers, with its tokenizer",
    _export_hf_marian,
    _is_hf_marian,
    options=("max_source_length", "extra_length"),
    check=lambda: require_extra("marian", "--format=hf-marian", "safetensors"),
)
