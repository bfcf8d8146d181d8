"""What a command said."""

import pytest


def on_stderr(capsys: pytest.CaptureFixture[str]) -> str:
    """The one error since the last reading, unwrapped."""
    told = " ".join(capsys.readouterr().err.split())
    assert told.count(" error: ") <= 1, told
    return told
