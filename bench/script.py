"""Imported first by a command that is run as a script: one line in place of a traceback while modules are imported."""

import importlib.util
import os
import signal
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
NAME = Path(sys.argv[0]).name


def _interrupted(*_: object) -> None:
    """Nothing is under way yet. An exception could be lost in the import that it falls into."""
    os.write(2, f"{NAME}: interrupted\n".encode())
    os._exit(130)


signal.signal(signal.SIGINT, _interrupted)
if importlib.util.find_spec("triton_vs_tilus") is None:
    installed = CHECKOUT / ".venv" / "bin" / "python"  # by README's first command
    if installed.exists() and Path(sys.prefix) != CHECKOUT / ".venv":
        instead = f"{installed} {' '.join(sys.argv)}"
    else:
        constraints = CHECKOUT / "constraints.txt"
        instead = f"{sys.executable} -m pip install --constraint {constraints} --editable {CHECKOUT}"
    print(
        f"{NAME}: error: the package triton_vs_tilus is not installed in {sys.prefix}: {instead}",
        file=sys.stderr,
    )
    sys.exit(2)
