"""Launches go to the device of their tensors, whichever is current."""

from contextlib import AbstractContextManager, nullcontext

import torch


def on(device: torch.device) -> AbstractContextManager[object]:
    """Within it the device is the current one; nothing is done where it is already, or for a CPU."""
    if device.type == "cpu" or device.index in (None, torch.cuda.current_device()):
        return nullcontext()
    return torch.cuda.device(device)
