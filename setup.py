"""What pyproject.toml cannot say: which folders are packages, and the package's page.

`problems/` and `hparams/` stand at the top level of the repository, where people
look for them and add to them, and install as subpackages of `t2t_keras`, so that no
user's own `problems/` folder can shadow them. `plugins/testing` installs as
`t2t_keras.testing`.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup


def package_page() -> str:
    """Returns README.md; its links are absolute if the repository has an address."""
    root = Path(__file__).parent
    readme = (root / "README.md").read_text("utf-8")
    try:
        import tomllib
    except ModuleNotFoundError:
        return readme  # pip then refuses this Python by `requires-python`
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    if not (address := project.get("urls", {}).get("Repository")):
        return readme
    base = f"{address}/blob/main/"
    code_or_link = re.compile(
        r"^```.*?^```|\]\((?!https?:|#)", re.DOTALL | re.MULTILINE
    )
    return code_or_link.sub(
        lambda found: f"]({base}" if found[0] == "](" else found[0], readme
    )


PLUGINS = {"t2t_keras.plugins": "plugins", "t2t_keras.testing": "plugins/testing"}
if not Path("plugins").is_dir():
    PLUGINS = {}

setup(
    long_description=package_page(),
    long_description_content_type="text/markdown",
    packages=[
        *find_packages(include=["t2t_keras", "t2t_keras.*"]),
        "t2t_keras.hparams",
        "t2t_keras.problems",
        *(f"t2t_keras.problems.{package}" for package in find_packages("problems")),
        *PLUGINS,
        *(
            f"t2t_keras.plugins.{package}"
            for package in find_packages("plugins", exclude=["testing"])
        ),
    ],
    package_dir={
        "t2t_keras": "t2t_keras",
        "t2t_keras.problems": "problems",
        "t2t_keras.hparams": "hparams",
        **PLUGINS,
    },
    package_data={
        "t2t_keras": ["py.typed", "html_page.css", "*.html"],
        "t2t_keras.plugins.corpus": ["*.html", "*.js", "*.toml"],
        "t2t_keras.plugins.interop": ["toolkits/*.toml"],
        "t2t_keras.plugins.interop.t2t": ["*.toml"],
        "t2t_keras.plugins.reports": ["*.css", "*.html", "*.js", "*.md"],
        "t2t_keras.plugins.server": ["*.css", "*.html", "*.js"],
        "t2t_keras.plugins.sweep": ["page.html"],
    },
)
