"""Packaging of t2t_keras.

`problems/` and `hparams/` stand at the top level of the repository, where people
look for them and add to them, and install as subpackages of `t2t_keras`, so that no
user's own `problems/` folder can shadow them.
"""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="t2t_keras",
    version="0.1.0",
    description="The Transformer of 'Attention Is All You Need' on Keras 3, "
    "in the tensor2tensor tradition",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[
        *find_packages(include=["t2t_keras", "t2t_keras.*"]),
        "t2t_keras.hparams",
        "t2t_keras.problems",
        *(f"t2t_keras.problems.{package}" for package in find_packages("problems")),
    ],
    package_dir={
        "t2t_keras": "t2t_keras",
        "t2t_keras.problems": "problems",
        "t2t_keras.hparams": "hparams",
    },
    package_data={"t2t_keras": ["py.typed"]},
    install_requires=[
        "tensorflow>=2.21,<2.22",
        "keras>=3.12",
        "tensorflow-text>=2.21.1; platform_system != 'Windows'",
        "tensorflow-datasets>=4.9.9",
        "importlib_resources",  # which tensorflow-datasets needs and does not say
        "sacrebleu>=2.5",
        "sentencepiece>=0.2.1",
        "tensorboard>=2.19",
        "rich>=13",
        "sacremoses>=0.1.1",
        "google-crc32c>=1.5",  # checksums of records
        "regex",  # Unicode classes such as \\p{Alnum}; sacremoses needs it, too
    ],
    extras_require={
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.22"],
        "plot": ["matplotlib>=3.9"],
        "test": [
            "mypy>=2.4,<2.5",
            "psutil",
            "pytest>=8",
            "pytest-xdist>=3.6",
            "ruff>=0.17,<0.18",
            "wheel",
        ],
    },
    entry_points={
        "console_scripts": ["t2t = t2t_keras.cli:main"],
        "t2t_keras.problems": ["builtin = t2t_keras.problems"],
        "t2t_keras.hparams": ["builtin = t2t_keras.hparams"],
    },
)
