"""What a launch has to know of a device."""

from contextlib import AbstractContextManager, nullcontext

import torch


def on(device: torch.device) -> AbstractContextManager[object]:
    """Within it the device is the current one, as it has to be at a launch with tensors of it; nothing is done where it
    is already, or for a CPU."""
    if device.type == "cpu" or device.index in (None, torch.cuda.current_device()):
        return nullcontext()
    return torch.cuda.device(device)


def lacks_dependent_launch() -> str | None:
    """Why no kernel can be launched dependently here; None where one can, or where there is no GPU to launch on."""
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0):
        return "programmatic dependent launch needs compute capability 9.0"
    return None
