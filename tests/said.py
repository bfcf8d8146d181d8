"""What a command said."""

import pytest


def on_stderr(capsys: pytest.CaptureFixture[str]) -> str:
    """Since the last reading, in one line: errors are wrapped."""
    return " ".join(capsys.readouterr().err.split())
