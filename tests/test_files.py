"""Files that others read meanwhile: the old text or the new one; one process at a time."""

import os
import re
import subprocess
import sys

import pytest
from filelock import Timeout

from triton_vs_tilus.bench import ROOT
from triton_vs_tilus.common import files


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "made" / "file.json"
    files.replace_text(path, "old µs\n")
    assert path.read_bytes() == "old µs\n".encode()
    sync = os.fsync

    def interrupted(number):
        sync(number)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.replace_text(path, "new\n")
    assert path.read_text() == "old µs\n" and list(path.parent.iterdir()) == [path]


def test_what_others_read_is_written_by_this_alone():
    """The rest is a program's own: read by nothing but what it starts, or not at all."""
    own = {"bench/diagnostics/counters.py", "bench/diagnostics/resources.py", "bench/references/helion_matmul.py"}
    paths = [path for folder in ("bench", "common") for path in (ROOT / folder).rglob("*.py")]
    writing = {str(path.relative_to(ROOT)) for path in paths if re.search(r"\.write_(text|bytes)\(", path.read_text())}
    assert writing <= own


def test_of_a_link_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "link").symlink_to("file")
    files.replace_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "text"


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
