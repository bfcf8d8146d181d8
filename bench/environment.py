"""What a row was measured on and with: device, driver, versions, revision."""

import hashlib
import os
import platform
import subprocess
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import torch

from bench.process import ROOT
from common import tuned


def environment(device: torch.device) -> dict[str, str | None]:
    """{device, gpus, driver, cuda, torch, triton, tilus, python, git, tuned}; None for what is not there. gpus: of the
    host, used or not: where there are several, a launch was seen to take longer. tuned: of the device's table of
    configs, which a search changes between two commits."""
    return {**_lasting(device), "tuned": _tuned(tuned.TABLES / f"{tuned.slug_of(device)}.json")}


def _tuned(table: Path) -> str | None:
    return hashlib.sha256(table.read_bytes()).hexdigest()[:12] if table.exists() else None


@lru_cache(maxsize=8)
def _lasting(device: torch.device) -> dict[str, str | None]:
    on_gpu = device.type == "cuda"
    gpus, driver = _host() if on_gpu else (None, None)
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else platform.processor() or platform.machine(),
        "gpus": gpus,
        "driver": driver,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": version("triton"),
        "tilus": version("tilus"),
        "python": platform.python_version(),
        "git": _revision(),
    }


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def not_installed(package: str, extra: str) -> str | None:
    """Why what an optional package brings cannot run here, or None."""
    if version(package) is not None:
        return None
    return f"{package} is not installed: pip install --editable '.[{extra}]'"


def _host() -> tuple[str | None, str | None]:
    """How many GPUs it has, which CUDA_VISIBLE_DEVICES does not change, and their driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlDeviceGetCount()), pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None, None


def _revision() -> str | None:
    """What SOURCE_REVISION says, for a copy that travelled without its history; else the commit, with '+' where files
    differ from it; None outside of a git checkout."""
    if told := os.environ.get("SOURCE_REVISION"):
        return told

    def git(*words: str) -> str:
        run = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True)
        return run.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
