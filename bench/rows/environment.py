"""What a row was measured on and with: device, driver, versions, revision."""

import os
import platform
import subprocess
from functools import lru_cache
from importlib import metadata

import msgspec
import torch

from triton_vs_tilus.bench import ROOT
from triton_vs_tilus.bench.measure import nvml
from triton_vs_tilus.bench.rows.row import EnvironmentRecord
from triton_vs_tilus.common import tuned


def environment(device: torch.device) -> EnvironmentRecord:
    """The device and versions of this process. The fingerprint of the tuned table, the user's layer included, is taken
    anew by each call."""
    return msgspec.structs.replace(_lasting(device), tuned=tuned.fingerprint(tuned.slug_of(device)))


@lru_cache(maxsize=8)
def _lasting(device: torch.device) -> EnvironmentRecord:
    on_gpu = device.type == "cuda"
    gpus, driver = _host() if on_gpu else (None, None)
    return EnvironmentRecord(
        device=torch.cuda.get_device_name(device) if on_gpu else platform.processor() or platform.machine(),
        gpus=gpus,
        driver=driver,
        cuda=torch.version.cuda,
        torch=str(torch.__version__),
        triton=version("triton"),
        tilus=version("tilus"),
        python=platform.python_version(),
        git=_revision(),
    )


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


def _host() -> tuple[int | None, str | None]:
    """How many GPUs the host has, whatever CUDA_VISIBLE_DEVICES says, and their driver."""
    try:
        host = nvml.host()
    except nvml.NVMLError:
        return None, None
    return host.gpus, host.driver


def _revision() -> str | None:
    """SOURCE_REVISION, for a copy without its history; else the commit, with '+' where files differ from it.

    None outside of a git checkout.
    """
    if revision := os.environ.get("SOURCE_REVISION"):
        return revision

    def said(*words: str) -> str:
        return git(*words).decode().strip()

    try:
        return said("rev-parse", "--short=12", "HEAD") + ("+" if said("status", "--porcelain", "-uno") else "")
    except RuntimeError:
        return None


def git(*words: str) -> bytes:
    """What git says of this checkout, and of no repository around an installed package. Raises RuntimeError outside of
    a checkout."""
    command = ["git", "-C", str(ROOT), "--git-dir", ".git", *words]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"git {' '.join(words[:2])}: {error}") from error
