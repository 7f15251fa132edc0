"""Which folders are packages; all else about the package is in pyproject.toml.

`problems/` and `hparams/` stand at the top level of the repository, where people
look for them and add to them, and install as subpackages of `t2t_keras`, so that no
user's own `problems/` folder can shadow them.
"""

from setuptools import find_packages, setup

setup(
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
)
