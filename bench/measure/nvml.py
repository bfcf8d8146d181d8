"""NVML: the GPUs and the driver of this host, and the clock, power and temperature of one GPU.

Every function raises NVMLError where the library is missing or does not answer.
"""

from typing import NamedTuple

import pynvml
from pynvml import NVMLError

__all__ = ["Gpu", "Host", "NVMLError", "Reading", "host"]


class Host(NamedTuple):
    """gpus: all of the host, whatever CUDA_VISIBLE_DEVICES says; driver: its version, e.g. '580.159.04'."""

    gpus: int
    driver: str


class Reading(NamedTuple):
    """SM clock in MHz, power in watts, temperature in degrees Celsius."""

    sm_mhz: float
    power_w: float
    temperature_c: float


def host() -> Host:
    pynvml.nvmlInit()
    return Host(pynvml.nvmlDeviceGetCount(), pynvml.nvmlSystemGetDriverVersion())


class Gpu:
    """One GPU, by its UUID as CUDA gives it, without 'GPU-'."""

    def __init__(self, uuid: str):
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")

    def reading(self) -> Reading:
        return Reading(
            pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM),
            pynvml.nvmlDeviceGetPowerUsage(self._handle) / 1000,
            pynvml.nvmlDeviceGetTemperature(self._handle, pynvml.NVML_TEMPERATURE_GPU),
        )

    def max_sm_mhz(self) -> float:
        return float(pynvml.nvmlDeviceGetMaxClockInfo(self._handle, pynvml.NVML_CLOCK_SM))  # untyped there: an int

    def energy_mj(self) -> float | None:
        """Millijoules since the driver was loaded; None for a GPU that does not count them."""
        try:
            return pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        except NVMLError:
            return None
