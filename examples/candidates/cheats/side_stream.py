"""A cheat: in order while calls come one by one, on a stream that nobody waits for when they come quickly.

    python bench/compare.py --shape 16x256x7168 --candidate examples/candidates/cheats/side_stream.py:matmul

The gate lets it pass. While it is timed it is wrong: the copy of its result, on the caller's stream, does not wait for
it. Work that runs ahead of its window shows on the GPU's timeline.
"""

import time

import torch

last = 0.0
stream = None


def matmul(a, b, out):
    global last, stream
    now = time.perf_counter()
    hurried, last = now - last < 2e-4, now
    if not hurried:
        return torch.mm(a, b, out=out)
    stream = stream or torch.cuda.Stream()
    with torch.cuda.stream(stream):
        return torch.mm(a, b, out=out)
