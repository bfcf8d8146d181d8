"""Files that others read meanwhile: one process at a time."""

import subprocess
import sys

import pytest
from filelock import Timeout

from triton_vs_tilus.common import files


def test_a_file_is_held_against_other_processes_and_nothing_stays_beside_it(tmp_path):
    path = tmp_path / "file"
    tries = "import pathlib, sys; from triton_vs_tilus.common.files import locked\n"
    tries += "with locked(pathlib.Path(sys.argv[1]), timeout=0): print('held')"
    words = [sys.executable, "-c", tries, str(path)]
    with files.locked(path):
        with pytest.raises(Timeout), files.locked(path, timeout=0):
            pass
        assert "Timeout" in subprocess.run(words, capture_output=True, text=True).stderr
    assert subprocess.run(words, capture_output=True, text=True).stdout == "held\n"
    assert list(tmp_path.iterdir()) == []
