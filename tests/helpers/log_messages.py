"""What the package has logged during a test."""

import pytest


def messages(caplog: pytest.LogCaptureFixture, package: str = "t2t_keras") -> list[str]:
    """Returns a package's messages; other packages and threads log as they please."""
    records = [x for x in caplog.records if x.name.partition(".")[0] == package]
    return [record.getMessage() for record in records]
