"""Messages that say what to install."""

import importlib.metadata
import json

import pytest

from t2t_keras.errors import install_command


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "t2t_keras[serve]"'),
        ({"url": "file:///my%20clone"}, 'pip install "/my clone[serve]"'),
        ({"url": "https://x/t2t_keras.whl"}, 'pip install "t2t_keras[serve]"'),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(
    origin, command, monkeypatch, tmp_path
):
    if origin:
        (tmp_path / "direct_url.json").write_text(json.dumps(origin))
        (tmp_path / "RECORD").write_text(f"{tmp_path.name}/direct_url.json,,\n")
    distribution = importlib.metadata.PathDistribution(tmp_path)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: distribution)
    assert install_command("serve") == command
