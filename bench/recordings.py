"""The commands that the files under bench/results are recorded by."""

from collections.abc import Sequence

from triton_vs_tilus.bench.workloads import GENERATED


def _only(*contenders: str) -> str:
    return " ".join(f"--only {name}" for name in contenders)


def _splits(name: str, splits: Sequence[int]) -> str:
    return _only(*(f"{language}/{name}@s{split}" for language in ("triton", "tilus") for split in splits))


# What is held against references is timed with them: two runs are not compared.
_REDUCED = _only("decompose_k.vector", "decompose_k.tile", "decompose_k.vector_pdl", "atomic")
_REFERENCES = f"{_only('torch', 'helion', 'flashinfer', 'tlx')} {_REDUCED}"
_SQUARE = f"{_only('data_parallel', 'semaphore')} --timing cold,graph --rounds 20"
PUBLISHED = "-published"  # how the recordings of the sources' own kernels end, after their workload
_STUDY = f"{_only('published_triton/decompose_k')} {_REDUCED} --timing cold,graph --rounds 20"
_AUTOTUNED = _only("torch/compile.max_autotune_no_cudagraphs")
_IN_TRITON = "published_triton", "triton"
_BY_MODELS = "published_triton/matmul.makora", "published_triton/matmul.kernelllm"  # of a squares' document
_IN_TORCH = _only("torch/decompose_k.eager", "torch/decompose_k.compiled")
_PAPER = _only("published_triton/w4a16", "triton/w4a16.atomic", "triton/w4a16.data_parallel")
# One launch that adds atomically, in all three; and two launches, the study's other design.
_BESIDE_TLX = f"{_only('tlx/decompose_k', 'triton/atomic', 'tilus/atomic')} --timing cold,graph --rounds 20"
_SKINNY = ("epilogue-bf16", "matmul-bf16", "matmul-fp16", "matmul-fp32")
_CORNERS = ((16, 8192), (64, 32768))
_MODES = ((16, 8192), (32, 16384), (64, 32768))  # where the study compared modes of torch.compile
_EVERY_OTHER = tuple((m, k) for m in (16, 32, 48, 64) for k in (8192, 16384, 24576, 32768))


def _skinny(sizes: Sequence[tuple[int, int]], kind: str) -> str:
    return " ".join(f"--problem {m}x{m}x{k}-{kind}" for m, k in sizes)


# By the name of the file: what compare.py is called with. Of 20 rounds intervals are narrower than what two runs differ
# by (notes/method.md). The router's rows of 2026-11-30 and before have 40.
RECORDINGS = {
    "router-nk": "--workload router --timing cold,graph,warm --rounds 20",
    "router-kn": "--workload router --layout kn --timing cold,graph --rounds 20",
    # On a GPU that takes what was not searched on it from a stand-in (common/tuned.py).
    "router-other-gpu": "--workload router --timing cold,graph,warm --rounds 20",
    "router-costs": "--shape 16x256x7168 --timing graph,host --energy",  # what a launch takes of host and power
    **{
        f"router-matched-{layout}": f"--workload router --tokens 1,16,64,1024 --layout {layout} --matched --rounds 20 "
        f"{_only('triton', 'tilus')} --skip data_parallel.persistent"
        for layout in ("nk", "kn")
    },
    # Numbers of tokens for which nearly all of these were searched, each left out once.
    "router-borrowed": (
        f"--workload router --tokens 1,4,16,32,64,256,512,1024 --layout nk --borrowed "
        f"{_only('sliced_k.fma', 'decompose_k.vector_pdl', 'triton/cluster', 'tilus/cluster')} "
        "--timing cold --rounds 20"
    ),
    # Numbers of tokens between these share their programs (common/dispatch.py).
    "models": f"--workload models --tokens 1,4,16,64,256,1024 {_only('torch/linear')} --timing cold,host --rounds 20",
    # What the call takes of the host, beside torch.nn.functional.linear.
    "linear-costs": (
        f"--workload router --tokens 1,16,1024 {_only('torch/functional_linear', 'torch/linear')} "
        "--timing graph,host --rounds 40"
    ),
    "chain": "--workload chain --timing graph --rounds 40",
    "skinny-epilogue-bf16": "--workload skinny-epilogue-bf16 --timing cold,graph --rounds 20",
    **{
        f"skinny-matmul-{dtype}": f"--workload skinny-matmul-{dtype} {_REDUCED} --timing cold,graph --rounds 20"
        for dtype in ("bf16", "fp16", "fp32")
    },
    # Beside fast products those that have been slow: rows of 8, odd K, T = 384.
    "cliffs": "--workload cliffs --timing cold,graph --rounds 20",
    "crossover": f"--workload crossover {_REDUCED} {_only('data_parallel')} --timing cold,graph --rounds 20",
    "square-tutorial": f"--workload square-tutorial {_SQUARE}",
    "square-tutorial-nk": f"--workload square-tutorial --layout nk {_SQUARE}",
    "semaphore-splits": f"--shape 16x256x7168 {_splits('semaphore.fp32', (1, 2, 3, 4, 6, 8))}",
    **{
        name: f"--workload {name} --timing cold,graph --rounds 20"
        for name in (
            *("or_reduce-int64", "or_reduce-int32", "or_reduce-ragged", "or_reduce-control"),
            *("w4a16-square", "w4a16-llama", "w4a16-tokens", "w4a16-kinds", "w4a16-bf16"),
        )
    },
    "w4a16-splits": (
        f"--workload w4a16-square {_splits('w4a16.atomic', (1, 2, 4, 8, 16))} --timing cold,graph --rounds 20"
    ),
    # Few rows by the large squares; warps that share K among the kernels, and whom a user would take instead.
    "w4a16-grid": " ".join(
        [
            *(f"--problem w4a16-{m}x{n}x{n}-fp16-g128" for m in (1, 2, 4, 8, 16) for n in (4096, 8192, 16384)),
            _only("triton/w4a16", "tilus/w4a16", "humming/w4a16"),
            "--timing cold,graph --rounds 20",
        ]
    ),
    # Whom a user would take instead, at every T.
    "router-opponents": " ".join(
        [
            "--workload router",
            _only("cublaslt", "torch/compile.default", "torch/compile.max_autotune_parameter"),
            _only("torch/compile.max_autotune_no_cudagraphs", "torch/compile.max_autotune_profiled"),
            _only("flashinfer", "cute_dsl", "helion"),
            _IN_TORCH,
            _only("sliced_k.fma", "decompose_k.vector_pdl", "triton/cluster", "tilus/cluster"),
            "--timing cold,graph,warm --rounds 20",
        ]
    ),
    # One row of A, where Inductor writes a reduction: beside the pair's, in one run.
    "router-reduction": (
        f"--workload router --tokens 1 {_only('sliced_k.fma', 'torch/compile.decompose_k')} {_AUTOTUNED} "
        f"{_only('torch/custom_op.fused')} --timing cold,graph,warm"
    ),
    "router-references": " ".join(
        [
            f"--workload router --tokens 1,16,64,256,1024 {_REFERENCES}",
            _only("sliced_k.fma"),
            "--timing cold,graph --rounds 20",
        ]
    ),
    # Explicit against explicit: Gluon and tilus, beside Triton.
    "router-explicit": " ".join(
        [
            "--workload router --tokens 1,16,64,256,512,1024 --layout nk",
            _only("gluon", "decompose_k.vector_pdl", "triton/cluster", "tilus/cluster"),
            "--timing cold,graph --rounds 20",
        ]
    ),
    # FlashInfer's other kernel, and torch.mm's other output.
    "router-fp32": " ".join(
        [
            "--workload router --tokens 1,4,16 --out-dtype fp32",
            _only("flashinfer", "cute_dsl", "sliced_k", "decompose_k.vector", "atomic"),
            "--timing cold,graph --rounds 20",
        ]
    ),
    **{
        f"skinny-{suite}-references": f"{_skinny(_CORNERS, kind)} {_REFERENCES} --timing cold,graph --rounds 20"
        for suite, kind in zip(_SKINNY, ("bf16-kn-relu", "bf16-kn", "fp16-kn", "fp32-kn"), strict=True)
    },
    # What the study holds its kernels against, and no search makes: on all of its shapes.
    **{
        f"skinny-{suite}-compiled": (
            f"--workload skinny-{suite} {_only('torch/compile.default')} {_IN_TORCH} --timing cold,graph --rounds 20"
        )
        for suite in _SKINNY
    },
    # Those that are tuned by Inductor, on more of the shapes than all of the references; without an epilogue they stand
    # beside the source's own kernels, below.
    "skinny-epilogue-bf16-autotuned": " ".join(
        [
            _skinny(_EVERY_OTHER, "bf16-kn-relu"),
            _only("torch/compile.max_autotune_no_cudagraphs", "torch/custom_op.fused"),
            _REDUCED,
            "--timing cold,graph --rounds 20",
        ]
    ),
    # The sources' own kernels, beside ours and what their documents hold them against: custom-op autotuning with ReLU
    # on all shapes, as the study has it; without an epilogue on every other one.
    f"skinny-epilogue-bf16{PUBLISHED}": (
        f"--workload skinny-epilogue-bf16 {_only('torch/custom_op.fused')} {_AUTOTUNED} {_STUDY}"
    ),
    **{
        f"skinny-matmul-{dtype}{PUBLISHED}": (
            f"{_skinny(_EVERY_OTHER, f'{dtype}-kn')} {_only('torch/custom_op.fused')} {_AUTOTUNED} {_STUDY}"
        )
        for dtype in ("bf16", "fp16", "fp32")
    },
    # Its decompose-K in torch, compiled in both modes that it compared.
    "skinny-modes": " ".join(
        [
            *(_skinny(_MODES, kind) for kind in ("bf16-kn-relu", "bf16-kn", "fp32-kn")),
            _only("torch/decompose_k"),
            "--timing cold --rounds 20",
        ]
    ),
    # By T the study has custom-op autotuning for each T and, dispatched over ranges of M, one graph for all.
    f"router{PUBLISHED}": (
        f"--workload router {_IN_TORCH} {_only('torch/custom_op.fused', 'torch/custom_op.fused_dynamic')} "
        f"{_AUTOTUNED} {_STUDY}"
    ),
    f"square-tutorial{PUBLISHED}": " ".join(
        [
            "--workload square-tutorial",
            _only("published_tilus/matmul", "published_triton/matmul"),
            _SQUARE,
            *(f"--skip {name}" for name in _BY_MODELS),
        ]
    ),
    f"square-generated{PUBLISHED}": " ".join(
        [
            "--workload square-generated",
            _only("published_triton/matmul", "data_parallel", "torch/compile.default"),
            *(f"--skip {name}" for name in _BY_MODELS),
            "--timing cold,graph --rounds 20",
        ]
    ),
    # What two models wrote, apart: the file above takes ten minutes.
    f"square-generated-models{PUBLISHED}": " ".join(
        [
            "--workload square-generated",
            _only(*_BY_MODELS),
            "--timing cold,graph --rounds 20",
        ]
    ),
    f"tutorial-splits{PUBLISHED}": " ".join(
        [
            "--shape 128x256x14336 --layout kn --dtype fp16",
            _only(*(f"published_tilus/matmul.v5@s{split}" for split in (1, 4, 12, 16))),
            _splits("semaphore.fp32", (1, 4, 12, 16)),
        ]
    ),
    # The study names no tile: beside small ones one of 64 x 64, in which its tl.reduce spills.
    **{
        f"or_reduce-{suite}{PUBLISHED}": " ".join(
            [
                f"--workload or_reduce-{suite}",
                _only(*(f"{language}/or_reduce.{kind}" for language in _IN_TRITON for kind in kinds)),
                *(_only(f"published_triton/or_reduce.{kind}") for kind in in_large_tiles),
                "--timing cold,graph --rounds 20",
            ]
        )
        for suite, kinds, in_large_tiles in (
            ("int64", ("reduce", "unrolled"), ("reduce_64x64", "unrolled_64x64")),
            ("control", ("control_reduce", "control_unrolled"), ()),
        )
    },
    # The paper's splits, one by one, stand with its kernels: each is a row of its own.
    f"w4a16-square{PUBLISHED}": " ".join(
        [
            f"--workload w4a16-square {_PAPER}",
            _only(*(f"published_triton/w4a16.splitk@s{split}" for split in (1, 2, 4, 8, 16))),
            "--timing cold,graph --rounds 20",
        ]
    ),
    f"w4a16-llama{PUBLISHED}": f"--workload w4a16-llama {_PAPER} --timing cold,graph --rounds 20",
    # Where Inductor has one template with ReLU in its store, as the study shows it: K is small. And at a deep K.
    "template-published": " ".join(
        [
            "--shape 16x16x256 --shape 16x16x32768 --layout kn --dtype bf16 --epilogue relu",
            _only(
                "published_triton/template",
                "torch/compile.max_autotune",
                "torch/compile.triton_templates",
                "data_parallel",
            ),
            "--timing cold,graph --rounds 20",
        ]
    ),
    # K with few powers of two, and so with few even bands, beside one with many; ours cut K into uneven ones.
    "uneven-k-published": " ".join(
        [
            *(f"--shape {m}x{m}x{k}" for m in (16, 64) for k in (8192, 8200, 10248, 12296)),
            "--layout kn --dtype bf16",
            _only("published_triton/decompose_k.first", "published_triton/decompose_k.optimized", "decompose_k.vector"),
            "--timing cold,graph --rounds 20",
        ]
    ),
    # What generators write, and what the gate says of it: casts around cuBLAS, sizes as constants, sums in C's dtype.
    "candidates": " ".join(
        [
            "--shape 16x64x2048 --shape 64x256x7168 --dtype bf16 --only candidate --timing cold,graph --rounds 20",
            *(
                f"--candidate examples/candidates/{name}.py:matmul"
                for name in ("casts_around_cublas", "hard_coded", "masked", "narrow_sum")
            ),
        ]
    ),
    "square-generated": f"--workload square-generated {_only('data_parallel')} --timing cold,graph --rounds 20",
    "square-generated-references": " ".join(
        [
            "--workload square-generated",
            _only("torch/compile.default", "torch/compile.max_autotune_no_cudagraphs"),
            _only("torch/compile.triton_templates", "torch/compile.max_autotune_parameter"),
            "--timing cold,graph --rounds 20",
        ]
    ),
    # Helion's search, on every other one of them.
    "square-generated-helion": " ".join(
        [
            *(f"--problem {m}x{n}x{k}-bf16-kn" for m, n, k in GENERATED[::2]),
            _only("helion/matmul", "data_parallel"),
            "--timing cold,graph --rounds 20",
        ]
    ),
    # Under a stock Triton 3.8, which triton-utlx is for: Triton's own kernels too.
    "router-tlx": f"--workload router --tokens 1,4,16,64,256,1024 {_only('decompose_k.vector_pdl')} {_BESIDE_TLX}",
    "skinny-epilogue-bf16-tlx": f"--workload skinny-epilogue-bf16 {_only('decompose_k.vector')} {_BESIDE_TLX}",
}
