"""The figures of the documents' own tables, as they stand there."""

from collections.abc import Mapping
from dataclasses import dataclass

from triton_vs_tilus.bench.show.claims.claim import Source
from triton_vs_tilus.bench.show.claims.listed import GENERATED, OR_REDUCE, STUDY, TUTORIAL, W4A16

SPREAD = "wins; min, median, max"


@dataclass(frozen=True)
class Published:
    """A table of a document.

    unit     'ms', 'TFLOPS', or of how many times as fast a kernel is as another the statistic over problems, or
             SPREAD, and the other: 'geometric mean over torch/mm'
    columns  the names of the columns; none: of a benchmark without figures
    figures  by problem (a pattern of its name) a cell a column, with the digits that it has there; a cell has one
             figure, or one for each kernel of `cell`; with an x it is a ratio, whatever the unit
    cell     the kernels of a cell, where it has several
    form     of the figures from here: how Python formats them
    setup    what the figures are of, where that is not what `source` says
    """

    source: Source
    unit: str
    columns: tuple[str, ...]
    figures: Mapping[str, tuple[str, ...]]
    cell: str = ""
    form: str = ".1f"
    setup: str = ""


# By the name that markers of pages use.
PUBLISHED = {
    "decompose_k-relu": Published(
        STUDY,
        "ms",
        ("eager", "compiled", "custom op", "optimized", "fused over unfused"),
        {
            "16x16x8192-bf16-kn-relu": ("0.0156", "0.0120", "0.0092", "0.0092", "1.33x"),
            "16x16x32768-bf16-kn-relu": ("0.0159", "0.0147", "0.0108", "0.0104", "1.34x"),
            "32x32x16384-bf16-kn-relu": ("0.0175", "0.0145", "0.0107", "0.0105", "1.33x"),
            "64x64x32768-bf16-kn-relu": ("0.0195", "0.0165", "0.0139", "0.0135", "1.19x"),
        },
    ),
    # Its two tables of wins are of bf16; fp16 and fp32 are computed likewise from its repository's CSVs at
    # shreyansh26/MLSys-Experiments@b63fb8c, decompose-k/bench_results (first) and bench_results_v2 (optimized).
    "decompose_k-wins": Published(
        STUDY,
        f"{SPREAD} over torch/custom_op.fused",
        ("first", "optimized"),
        {
            "*-bf16-kn-relu": ("0 of 28; 0.874, 0.917, 0.982", "26 of 28 (+1 tie); 0.990, 1.026, 1.080"),
            "*-bf16-kn": ("0 of 28; 0.886, 0.920, 0.956", "24 of 28 (+2 ties); 0.997, 1.022, 1.052"),
            "*-fp16-kn": ("0 of 28; 0.872, 0.925, 0.986", "27 of 28; 0.995, 1.027, 1.073"),
            "*-fp32-kn": ("10 of 28; 0.779, 0.917, 1.204", "23 of 28 (+1 tie); 0.971, 1.103, 1.370"),
        },
        setup=STUDY.setup.replace("bf16", "fp16 and fp32 from its repository"),
    ),
    # It prints these with its times, and shows neither.
    "tutorial": Published(TUTORIAL, "TFLOPS", (), {"4096x4096x4096-fp16-kn": (), "4096x4096x14336-fp16-kn": ()}),
    "or_reduce": Published(
        OR_REDUCE,
        "ms",
        ("tl.reduce", "unrolled", "speedup"),
        {
            "or-64x128x4-int64": ("0.014", "0.012", "1.19x"),
            "or-128x256x8-int64": ("0.056", "0.016", "3.58x"),
            "or-256x512x16-int64": ("0.088", "0.031", "2.84x"),
            "or-512x1024x4-int64": ("0.013", "0.013", "1.01x"),
            "or-1024x2048x8-int64": ("1.038", "0.414", "2.50x"),
            "or-2048x4096x16-int64": ("8.438", "3.275", "2.58x"),
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
        form=".2f",
    ),
    # Its figures 9 and 10 plot these; it has no numbers of them.
    "w4a16-splits": Published(
        W4A16,
        "TFLOPS",
        (),
        {f"w4a16-{m}x{size}x{size}-fp16-g128": () for m in (1, 16) for size in (512, 1024, 2048, 4096, 8192, 16384)},
        form=".2f",
    ),
    # From its repository, LironKesem/KernelGeneration; the document has no figures of the sweep.
    "squares": Published(
        GENERATED,
        "geometric mean over torch/mm",
        ("tutorial", "compiled", "templates", "Helion", "KernelLLM", "Makora"),
        {"*": ("0.85", "0.998", "0.884", "0.93", "0.365", "0.325")},
    ),
    # Likewise, of triton_bench_results/NVIDIA_H100 at 4c6e8f0, which has 28 of the 30 shapes.
    "squares-tflops": Published(
        GENERATED,
        "TFLOPS",
        ("tutorial", "compiled", "templates", "Helion", "KernelLLM", "Makora"),
        {
            "256x512x384-bf16-kn": ("13.1", "14.2", "16.5", "16.5", "7.3", "6.0"),
            "384x640x512-bf16-kn": ("31.8", "35.1", "37.8", "34.0", "16.0", "12.2"),
            "512x768x640-bf16-kn": ("53.3", "64.5", "69.0", "70.2", "26.3", "20.0"),
            "640x896x768-bf16-kn": ("86.8", "108.8", "101.6", "96.2", "44.2", "31.0"),
            "768x1024x896-bf16-kn": ("136.3", "162.5", "141.2", "154.0", "57.6", "44.2"),
            "896x1152x1024-bf16-kn": ("189.3", "212.4", "207.1", "205.8", "71.0", "58.9"),
            "1024x1280x1152-bf16-kn": ("224.2", "270.4", "224.7", "234.2", "85.3", "77.2"),
            "1152x1408x1280-bf16-kn": ("288.4", "337.0", "292.9", "290.9", "106.4", "97.0"),
            "1280x1536x1408-bf16-kn": ("344.0", "378.6", "391.4", "359.7", "119.2", "118.6"),
            "1408x1664x1536-bf16-kn": ("322.7", "425.2", "357.0", "358.2", "130.5", "140.7"),
            "1536x1792x1664-bf16-kn": ("385.3", "453.7", "412.5", "406.0", "144.7", "163.1"),
            "1664x1920x1792-bf16-kn": ("433.2", "547.1", "460.5", "486.2", "162.9", "192.5"),
            "1792x2048x1920-bf16-kn": ("521.2", "539.7", "539.7", "531.9", "172.0", "219.0"),
            "2048x2304x2176-bf16-kn": ("412.7", "637.3", "497.5", "476.8", "202.6", "155.3"),
            "2176x2432x2304-bf16-kn": ("441.0", "579.1", "560.7", "540.1", "204.1", "173.9"),
            "2304x2560x2432-bf16-kn": ("486.2", "651.5", "589.4", "615.8", "220.9", "193.0"),
            "2432x2688x2560-bf16-kn": ("546.5", "581.1", "557.0", "566.6", "218.0", "212.4"),
            "2560x2816x2688-bf16-kn": ("592.2", "642.2", "589.9", "631.4", "234.8", "231.4"),
            "2688x2944x2816-bf16-kn": ("650.5", "709.9", "584.2", "686.8", "247.7", "251.7"),
            "2816x3072x2944-bf16-kn": ("705.2", "771.9", "608.7", "759.4", "263.7", "271.4"),
            "2944x3200x3072-bf16-kn": ("544.2", "656.1", "535.8", "563.0", "259.1", "204.5"),
            "3072x3328x3200-bf16-kn": ("589.4", "736.3", "563.0", "633.0", "274.8", "221.7"),
            "3200x3456x3328-bf16-kn": ("634.9", "667.3", "547.7", "651.6", "271.0", "237.5"),
            "3328x3584x3456-bf16-kn": ("682.5", "714.5", "579.1", "708.6", "285.9", "257.7"),
            "3456x3712x3584-bf16-kn": ("576.6", "745.2", "620.7", "646.6", "297.4", "275.6"),
            "3584x3840x3712-bf16-kn": ("616.5", "740.5", "574.3", "661.3", "303.2", "223.3"),
            "3712x3968x3840-bf16-kn": ("650.4", "722.2", "577.7", "681.4", "308.1", "239.9"),
            "3840x4096x3968-bf16-kn": ("692.6", "764.7", "592.1", "716.9", "321.8", "255.3"),
            **dict.fromkeys(("3968x4224x4096-bf16-kn", "4096x4352x4224-bf16-kn"), ("-",) * 6),
        },
        setup="H100, Triton 3.5.1; bf16",
    ),
}
