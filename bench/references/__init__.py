"""What the kernels are held against: the same record, with a library's or a compiler's product behind it."""

from bench.references import torch_mm

KERNELS = (torch_mm.KERNEL,)
