"""What a row says of where it was measured."""

import pynvml
import pytest
import torch

from triton_vs_tilus.bench.measure import nvml
from triton_vs_tilus.bench.rows import environment
from triton_vs_tilus.common import tuned


@pytest.fixture
def host(monkeypatch):
    """Of two GPUs."""
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "580.1")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA made up")
    return monkeypatch


def told(kind: str) -> tuple[str | int | None, ...]:
    here = environment.environment(torch.device(kind))
    return here.device, here.gpus, here.driver


@pytest.fixture(autouse=True)
def asked_afresh():
    asked_once = (environment._lasting, tuned.slug_of)
    for answers in asked_once:
        answers.cache_clear()
    yield
    for answers in asked_once:
        answers.cache_clear()


def test_the_gpus_of_the_host_are_told_seen_or_not(host):
    assert told("cuda") == ("NVIDIA made up", 2, "580.1")


def test_without_nvml_there_is_no_guess(host):
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    host.setattr(pynvml, "nvmlInit", missing)
    assert told("cuda")[1:] == (None, None)


def test_a_cpu_has_no_gpus():
    assert told("cpu")[1:] == (None, None)


@pytest.mark.gpu
def test_a_gpu_is_one_of_its_hosts():
    _, gpus, driver = told("cuda")
    assert gpus is not None and gpus >= torch.cuda.device_count()
    assert driver


def test_the_most_that_a_clock_may_reach_is_a_float_as_rows_have_it(host):
    """NVML counts whole MHz, which JSON would write as 1980 and read as 1980.0."""
    host.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
    host.setattr(pynvml, "nvmlDeviceGetMaxClockInfo", lambda handle, clock: 1980)
    assert type(nvml.Gpu("made up").max_sm_mhz()) is float
