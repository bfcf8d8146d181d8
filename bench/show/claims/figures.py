"""The figures of the documents' own tables, as they stand there."""

from collections.abc import Mapping
from dataclasses import dataclass

from triton_vs_tilus.bench.show.claims.claim import Source
from triton_vs_tilus.bench.show.claims.listed import GENERATED, OR_REDUCE, STUDY, W4A16


@dataclass(frozen=True)
class Published:
    """A table of a document.

    unit     'ms', 'TFLOPS', or of how many times as fast a kernel is as another the statistic over problems, and the
             other: 'median over torch/custom_op.fused'
    columns  the names of the columns
    figures  by problem (a pattern of its name) a cell a column, with the digits that it has there; a cell has one
             figure, or one for each kernel of `cell`
    cell     the kernels of a cell, where it has several
    """

    source: Source
    unit: str
    columns: tuple[str, ...]
    figures: Mapping[str, tuple[str, ...]]
    cell: str = ""


# By the name that markers of pages use.
PUBLISHED = {
    "decompose_k-relu": Published(
        STUDY,
        "ms",
        ("eager", "compiled", "custom op", "optimized"),
        {
            "16x16x8192-bf16-kn-relu": ("0.0156", "0.0120", "0.0092", "0.0092"),
            "16x16x32768-bf16-kn-relu": ("0.0159", "0.0147", "0.0108", "0.0104"),
            "32x32x16384-bf16-kn-relu": ("0.0175", "0.0145", "0.0107", "0.0105"),
            "64x64x32768-bf16-kn-relu": ("0.0195", "0.0165", "0.0139", "0.0135"),
        },
    ),
    # Of its suite without an epilogue it tells no times.
    "decompose_k-medians": Published(
        STUDY,
        "median over torch/custom_op.fused",
        ("first", "optimized"),
        {"*-bf16-kn-relu": ("0.917", "1.026"), "*-bf16-kn": ("0.920", "1.022")},
    ),
    "or_reduce": Published(
        OR_REDUCE,
        "ms",
        ("tl.reduce", "unrolled"),
        {
            "or-64x128x4-int64": ("0.014", "0.012"),
            "or-128x256x8-int64": ("0.056", "0.016"),
            "or-256x512x16-int64": ("0.088", "0.031"),
            "or-512x1024x4-int64": ("0.013", "0.013"),
            "or-1024x2048x8-int64": ("1.038", "0.414"),
            "or-2048x4096x16-int64": ("8.438", "3.275"),
        },
    ),
    # Tables 1 to 6; Table 4, of the A100 of 40 GB at M = 16, is Table 3, of the H100 at M = 1, rounded.
    "w4a16": Published(
        W4A16,
        "TFLOPS",
        ("A100 40 GB", "A100 80 GB", "H100"),
        {
            "w4a16-1x512x512-fp16-g128": ("0.01, 0.07", "0.02, 0.01", "0.28, 0.12"),
            "w4a16-1x1024x1024-fp16-g128": ("0.04, 0.04", "0.01, 0.01", "0.77, 0.28"),
            "w4a16-1x2048x2048-fp16-g128": ("0.11, 0.08", "0.06, 0.04", "1.85, 0.62"),
            "w4a16-1x4096x4096-fp16-g128": ("0.14, 0.09", "0.22, 0.18", "2.25, 1.36"),
            "w4a16-1x8192x8192-fp16-g128": ("0.15, 0.09", "1.03, 0.66", "2.46, 1.45"),
            "w4a16-1x16384x16384-fp16-g128": ("0.18, 0.12", "1.25, 0.96", "2.87, 1.98"),
            "w4a16-16x512x512-fp16-g128": ("0.3, 0.1", "0.3, 0.1", "0.4, 0.2"),
            "w4a16-16x1024x1024-fp16-g128": ("0.8, 0.3", "0.3, 0.2", "1.4, 0.2"),
            "w4a16-16x2048x2048-fp16-g128": ("1.9, 0.6", "1.1, 0.9", "2.2, 0.9"),
            "w4a16-16x4096x4096-fp16-g128": ("2.2, 1.4", "4.5, 3.5", "3.6, 1.7"),
            "w4a16-16x8192x8192-fp16-g128": ("2.5, 1.5", "16.3, 10.4", "4.1, 3.7"),
            "w4a16-16x16384x16384-fp16-g128": ("2.9, 2.0", "20.0, 15.3", "4.6, 3.8"),
        },
        cell="SplitK, data parallel",
    ),
    # From its repository, LironKesem/KernelGeneration; the document has no figures of the sweep.
    "squares": Published(
        GENERATED,
        "geometric mean over torch/mm",
        ("tutorial", "compiled", "templates", "Helion", "KernelLLM", "Makora"),
        {"*": ("0.85", "0.998", "0.884", "0.93", "0.365", "0.325")},
    ),
}
