"""What a command said."""

import pytest


def on_stderr(capsys: pytest.CaptureFixture[str]) -> str:
    """Since the last reading, in one line: errors are wrapped."""
    return " ".join(capsys.readouterr().err.split())


def the_error(capsys: pytest.CaptureFixture[str]) -> str:
    """What argparse said on stderr since the last reading, of which there is one error."""
    _, *errors = on_stderr(capsys).split(": error: ")
    assert len(errors) == 1, errors
    return errors[0]
