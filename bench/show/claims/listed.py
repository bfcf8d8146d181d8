"""The claims, by source: what is claimed, and the rule and the rows by which it is confirmed or contradicted."""

from dataclasses import replace

from triton_vs_tilus.bench.rows.row import BASELINE
from triton_vs_tilus.bench.show.claims.claim import Claim, Source
from triton_vs_tilus.bench.show.claims.rules import (
    Ahead,
    BestSplit,
    BlocksLoaded,
    BufferDominates,
    CloseMedians,
    CompiledTo,
    ComputeBound,
    Counted,
    Crossover,
    DividesPoorly,
    DoBenchCounts,
    Errors,
    LargerGain,
    LargerMargin,
    LimitedBySharedMemory,
    MemoryBound,
    MoreSplitsLose,
    NeverAhead,
    NeverDecomposes,
    NoWorkspaceUnsplit,
    Programs,
    Proportional,
    ReducerPrograms,
    ReluApart,
    RepeatsEqual,
    RequiresCleanResets,
    SameOrder,
    SeveralLaunches,
    ShownByTest,
    SplittingPays,
    Tiles,
    TilesOfAProgram,
    Untestable,
    UntiledK,
    Warps,
    Waves,
    Winners,
    WorkspaceShare,
    about,
    between,
)

FIRST = "published_triton/decompose_k.first"
OPTIMIZED = "published_triton/decompose_k.optimized"
UNFUSED = "published_triton/decompose_k.optimized_unfused"
TRITON_TUTORIAL = "published_triton/matmul"
V5 = "published_tilus/matmul.v5"
V5_SPLIT = (f"{V5}@s[2-9]*", f"{V5}@s1?")  # by one split no block takes a turn
VECTOR = "triton/decompose_k.vector"
FUSED_OP = "torch/custom_op.fused"
MM_OP = "torch/custom_op.mm"
ANY_OP = "torch/custom_op.*"
COMPILED = "torch/compile.max_autotune_no_cudagraphs"
AS_GRAPH = "torch/compile.max_autotune"
ATOMIC = "triton/atomic*"
TLX = "tlx/decompose_k"
EPILOGUE = "skinny-epilogue-bf16"
PLAIN = "skinny-matmul-bf16"
SWEEP = "square-generated"
OR_STUDY = "published_triton/or_reduce"
REDUCED, UNROLLED = f"{OR_STUDY}.reduce", f"{OR_STUDY}.unrolled"
SPLIT_K, DATA_PARALLEL = "published_triton/w4a16.splitk", "published_triton/w4a16.data_parallel"
BY_SPLIT = f"{SPLIT_K}@s*"  # the fastest of its splits, as the paper tunes it
NSIGHT = "M = 16, N = K = 4096"  # the problem that the W4A16 study counted
NSIGHT_CASE = "m == 16 and n == 4096 and k == 4096"
# The problems on which the decompose-K study compared modes: three shapes, of all its suites but fp16's.
MODES_CASES = "dtype != 'fp16' and (m == 16 and k == 8192 or m == 32 and k == 16384 or m == 64 and k == 32768)"

OF_TLX = "its own kernels; here those of this project, one in TLX and one in Triton"
AT_MM = "aten.mm is intercepted without an epilogue; here an operator of its own"
IN_TRITON = "its own kernels, one launch in TLX; here those of this project, both in Triton"
# Why times of this project's kernels of one launch decide nothing about the study's.
NOT_ITS_TLX = "the kernels here are not its own: its TLX kernel has only tiles of 64 x 32, and adds by a descriptor"
# What Inductor compiles to, by the row's message: its kernels, in order.
BMM_AND_SUM = r"bmm_dtype, triton_\w+_fused__to_copy_sum_0"
BMM_AND_SUM_WITH_RELU = r"bmm_dtype, triton_\w+_fused__to_copy_relu_sum_0"
RELU_APART = r".*triton_poi_fused_relu_\d+"
# The oldest torch whose custom-op autotuning can time its candidates in CUDA graphs, as the study has it.
TIMED_IN_GRAPHS = "2.12"
COMPILED_SPLITS, SPLITS_AS_GRAPH = "torch/decompose_k.compiled", "torch/decompose_k.max_autotune"
# The numbers of tokens at which the study holds the router against eager.
ROUTER_CASES = "m in [1, 16, 64, 256, 768]"
SWEEP_CASES = "m <= 3840"  # 28 shapes, where its repository's file of the H100 ends
UNEVEN_CASES = "m in [16, 64] and k in [8192, 8200, 10248, 12296]"
TEMPLATE_CASES = "m == 16 and n == 16 and k in [256, 32768]"  # where it reads what Inductor generates

STUDY = Source(
    "decompose-K",
    "https://shreyansh26.github.io/post/2026-06-21_decompose-k-triton/",
    "H100 (132 SMs), torch 2.12 dev, Triton 3.7.0 dev (its lock file); bf16",
    "H100 80GB HBM3",
    "the rows are of torch 2.11, whose custom-op autotuning cannot time its candidates in CUDA graphs, and of the "
    "Triton that it pins, 3.6",
)
# What the post does not have: fp32's gain, and its TLX kernel, which came a month later.
STUDY_CODE = replace(STUDY, name="decompose-K repository", url="https://github.com/shreyansh26/MLSys-Experiments")
STUDY_TLX = replace(STUDY_CODE, setup="H100 (132 SMs), torch 2.12 dev, Triton 3.7.1; bf16")
TUTORIAL = Source(
    "tilus split-K tutorial",
    "https://github.com/NVIDIA/tilus/blob/v0.2.0/examples/matmul/matmul_v5.py",
    "GPU not named, tilus 0.2.0; fp16",
)
OR_REDUCE = Source(
    "OR reduction",
    "https://notgum.com/post/manual-unrolling-beats-tl.reduce-for-small-k/",
    "GPU, dtype, tile and warps not named, Triton 3.4.0",
)
W4A16 = Source(
    "W4A16 SplitK",
    "https://arxiv.org/abs/2402.00025",
    "A100 40GB PCIe, A100 80GB SXM, H100 PCIe (132 SMs and HBM3 by its table; the product has 114 and HBM2e), versions "
    "not named; fp16",
    "H100 80GB HBM3",
)
GENERATED = Source(
    "generated kernels",
    "https://next.redhat.com/2026/02/12/from-hand-tuned-to-generated-a-reproducible-triton-gpu-kernel-benchmark-across-different-vendors",
    "MI300X and B200, its repository has an H100; versions not named; bf16",
    "H100 80GB HBM3",
)
# The sweep's figures stand in the repository that the document is of.
GENERATED_CODE = replace(
    GENERATED,
    name="generated kernels' repository",
    url="https://github.com/LironKesem/KernelGeneration",
    setup="H100, Triton 3.5.1; bf16",
)
# Inductor's threshold, from which it follows; no document says it.
OWN = Source(
    "this project",
    "https://github.com/pytorch/pytorch/blob/v2.11.0/torch/_inductor/config.py",
    "follows from Inductor's threshold, K at least 32 times M and N",
)
# The W4A16 study's GPUs. An H100 SXM has the SMs, the HBM3 and the L2 of its table, and 1.7 times its bandwidth.
ITS_H100 = ("H100 PCIe",)
ITS_GPUS = ("A100", *ITS_H100)
# What the compiler and the architecture decide, and the board does not; the table names no GPU.
ITS_ARCHITECTURES = ("A100", "H100", "H200")

CLAIMS = (
    Claim(
        "With ReLU, the tile-shaped reducer loses to custom-op autotuning on every shape (0 of 28)",
        STUDY,
        NeverAhead(FIRST, FUSED_OP),
        EPILOGUE,
        torch=TIMED_IN_GRAPHS,
    ),
    Claim(
        "With ReLU, the median of the tile-shaped reducer is 0.917x custom-op autotuning",
        STUDY,
        about(FIRST, FUSED_OP, 0.917),
        EPILOGUE,
        there="its text has 8 to 13% on the median; 13% is its worst shape, 0.874x",
        torch=TIMED_IN_GRAPHS,
    ),
    Claim(
        "Without an epilogue, the tile-shaped reducer loses on every shape too (0 of 28)",
        STUDY,
        NeverAhead(FIRST, ANY_OP),
        PLAIN,
        there=AT_MM,
        torch=TIMED_IN_GRAPHS,
    ),
    Claim(
        "Without an epilogue, the median of the tile-shaped reducer is 0.920x",
        STUDY,
        about(FIRST, ANY_OP, 0.920),
        PLAIN,
        there=AT_MM,
        torch=TIMED_IN_GRAPHS,
    ),
    Claim(
        "With ReLU, the vector reducer beats custom-op autotuning (26 of 28 and a tie)",
        STUDY,
        Ahead(OPTIMIZED, FUSED_OP),
        EPILOGUE,
        torch=TIMED_IN_GRAPHS,
    ),
    Claim(
        "With ReLU, the median of the vector reducer is 1.026x custom-op autotuning",
        STUDY,
        about(OPTIMIZED, FUSED_OP, 1.026),
        EPILOGUE,
        torch=TIMED_IN_GRAPHS,
    ),
    Claim(
        "Without an epilogue, the vector reducer beats it too (24 of 28 and 2 ties)",
        STUDY,
        Ahead(OPTIMIZED, ANY_OP),
        PLAIN,
        there=AT_MM,
        torch=TIMED_IN_GRAPHS,
    ),
    Claim(
        "Without an epilogue, the median of the vector reducer is 1.022x",
        STUDY,
        about(OPTIMIZED, ANY_OP, 1.022),
        PLAIN,
        there=AT_MM,
        torch=TIMED_IN_GRAPHS,
    ),
    Claim(
        "The hand-written kernel wins only by a few percent over custom-op autotuning",
        STUDY,
        between(OPTIMIZED, ANY_OP, 1.022, 1.026),
        "skinny-*-bf16",
        there=AT_MM,
        torch=TIMED_IN_GRAPHS,
    ),
    Claim(
        "The reducer's shape, each with a config of its own, moves the median by roughly 11% (0.917x to 1.026x)",
        STUDY,
        about(OPTIMIZED, FIRST, 1.026 / 0.917),
        EPILOGUE,
    ),
    Claim(
        "ReLU fused into the reducer's store is worth 1.19x to 1.4x",
        STUDY,
        between(OPTIMIZED, UNFUSED, 1.19, 1.4, one_config=True),
        EPILOGUE,
    ),
    Claim(
        "Fused decompose-K is 1.5x to 1.7x as fast as eager torch.mm and ReLU",
        STUDY,
        between(OPTIMIZED, BASELINE, 1.5, 1.7),
        EPILOGUE,
    ),
    Claim(
        "At M = N = 16 eager takes 1.5x to 1.7x as long as fused decompose-K",
        STUDY,
        between(OPTIMIZED, BASELINE, 1.5, 1.7),
        EPILOGUE,
        "m == 16",
    ),
    Claim(
        "At M = N = 16 eager is slower than decompose-K with ReLU apart, too",
        STUDY,
        Ahead(UNFUSED, BASELINE, 1.0),
        EPILOGUE,
        "m == 16",
    ),
    Claim(
        "Fused decompose-K is 1.2x to 1.4x as fast as torch.mm and ReLU compiled",
        STUDY,
        between(OPTIMIZED, COMPILED, 1.2, 1.4),
        EPILOGUE,
        unlike="torch 2.11 compiles to another program: torch.mm and a launch of ReLU on most shapes",
    ),
    Claim(
        "Of torch.compile's modes max-autotune-no-cudagraphs is the best, edging out max-autotune",
        STUDY,
        Ahead(COMPILED_SPLITS, SPLITS_AS_GRAPH, 0.5, one_config=True),
        "skinny-*",
        MODES_CASES,
        there="decompose-K written in torch, compiled; in its repository, torch.mm",
        unlike="torch 2.11's max-autotune copies A and B into its graph's memory at each call, and that is most of its "
        "time; the study does not say whether it was so there",
    ),
    Claim(
        "What custom-op autotuning chooses has 64 or 128 splits on the whole grid",
        STUDY,
        Winners(FUSED_OP, (64, 128)),
        EPILOGUE,
        there="its repository's CSV has 32 splits on 8 of the 28 shapes",
        torch=TIMED_IN_GRAPHS,
    ),
    Claim(
        "Without an epilogue, the vector reducer is ahead of eager torch.mm across the grid",
        STUDY,
        Ahead(OPTIMIZED, BASELINE, 1.0),
        PLAIN,
    ),
    Claim(
        "Without an epilogue, the margin over eager torch.mm is smaller than with ReLU",
        STUDY,
        LargerMargin(OPTIMIZED, BASELINE, (PLAIN, EPILOGUE)),
        "skinny-*-bf16",
    ),
    Claim(
        "fp16 matches bf16 closely",
        STUDY,
        CloseMedians(OPTIMIZED, BASELINE, ("bf16", "fp16"), within=0.05),
        "skinny-matmul-*",
        "dtype in ['bf16', 'fp16']",
    ),
    Claim(
        "fp32 has less to gain than bf16",
        STUDY,
        LargerGain(OPTIMIZED, BASELINE, ("fp32", "bf16")),
        "skinny-matmul-*",
        "dtype in ['bf16', 'fp32']",
    ),
    Claim(
        "In fp32 eager, compiled, autotuned and hand-written stand in the same order as in bf16",
        STUDY,
        SameOrder((OPTIMIZED, ANY_OP, COMPILED, BASELINE), ("bf16", "fp32")),
        "skinny-matmul-*",
        "dtype in ['bf16', 'fp32']",
        there=AT_MM,
        torch=TIMED_IN_GRAPHS,
    ),
    Claim(
        "With fp32 partials the split costs no accuracy",
        STUDY,
        Errors(OPTIMIZED, BASELINE, most=1.1),
        where="dtype == 'bf16'",
    ),
    Claim(
        "Small M = N tend to take 16x16 tiles, M = N = 64 shifts to 64x32 or 64x64",
        STUDY,
        Tiles(OPTIMIZED, {16: ("16x16",), 64: ("64x32", "64x64")}),
        "skinny-*-bf16",
        "m in [16, 64]",
    ),
    Claim(
        "A tile of 16x16 is too small for 4 warps: it takes 1 or 2",
        STUDY,
        Warps(OPTIMIZED, "16x16", (1, 2)),
        "skinny-*-bf16",
    ),
    Claim(
        "To Inductor's lowering the tile-shaped kernel loses in the reduction; the product is a wash",
        STUDY,
        Untestable("needs the product and the sum of both timed separately; such stages are not recorded"),
    ),
    Claim(
        "Where Inductor chooses decompose-K it leaves ReLU a kernel of its own",
        STUDY,
        ReluApart(("torch/compile.max_autotune*", "torch/compile.decompose_k")),
        EPILOGUE,
    ),
    Claim(
        "Splits that add atomically need a separate pass for an epilogue",
        STUDY,
        SeveralLaunches(ATOMIC),
        EPILOGUE,
        unlike="said of splits that add into the output; these add into a workspace, and the last applies the epilogue",
    ),
    Claim(
        "Decompose-K does not pay where M and N are large, or K is small",
        STUDY,
        Crossover(VECTOR, BASELINE, k=8192, m=64),
        "crossover",
        there="its own kernel; here this project's",
        unlike="the kernel here is not its own",
    ),
    Claim(
        "Where K divides poorly, decompose-K does not pay",
        STUDY,
        DividesPoorly(OPTIMIZED, BASELINE, even=8192),
        "shape",
        UNEVEN_CASES,
        unlike="its candidates divide these K evenly in as many ways as 8192, or nearly: 6 to 14, and 8",
    ),
    Claim(
        "Where its buffer of partial sums dominates, decompose-K does not pay",
        STUDY,
        BufferDominates(f"{OPTIMIZED}@s*", BASELINE, share=0.5),
    ),
    Claim(
        "At M = N = 16 the vector reducer has 8 programs of 32 elements",
        STUDY,
        ReducerPrograms(size=16, elements=32, claimed=8),
    ),
    Claim(
        "At M = N = 16, K = 256 Inductor has one template, with ReLU in its store",
        STUDY,
        CompiledTo(AS_GRAPH, {256: "triton_tem_fused_mm_relu"}),
        "shape",
        TEMPLATE_CASES,
    ),
    Claim(
        "At M = N = 16, K = 32768 Inductor has decompose-K of 64 splits",
        STUDY,
        CompiledTo(AS_GRAPH, {32768: "decompose-K, split 64"}),
        "shape",
        TEMPLATE_CASES,
        unlike="what Inductor's search finds depends on its version, and the rows are of torch 2.11",
    ),
    Claim(
        "Compiled, decompose-K written in torch is a bmm and one kernel with the sum and the cast",
        STUDY,
        Programs(COMPILED_SPLITS, BMM_AND_SUM),
        "router",
        there="T = 64, 4 splits",
    ),
    Claim(
        "With ReLU, it is a bmm and one kernel with the sum and ReLU",
        STUDY,
        Programs(COMPILED_SPLITS, BMM_AND_SUM_WITH_RELU),
        EPILOGUE,
    ),
    Claim(
        "Plain torch.compile(decomposeK) leaves the epilogue a kernel of its own",
        STUDY,
        Programs(COMPILED_SPLITS, RELU_APART),
        EPILOGUE,
        there="its takeaway, against the claim above; true of relu(mm) where Inductor decomposes",
    ),
    Claim(
        "do_bench(warmup=10, rep=50) runs 10 times to warm up, and 50 times to measure",
        STUDY,
        DoBenchCounts(),
    ),
    Claim(
        "Ranges of M are dispatched to their winners in one compiled graph, which branches when it is called",
        STUDY,
        ShownByTest("tests/test_references.py", "test_one_graph_serves_every_m"),
    ),
    Claim(
        "Past Dynamo's recompile limit of 8, later shapes are timed eagerly under a compiled name",
        STUDY,
        ShownByTest("tests/test_references.py", "test_without_a_reset_dynamo_falls_back_to_eager_and_says_nothing"),
    ),
    Claim(
        "From the tile-shaped to the vector reducer fp32 gains more than bf16",
        STUDY_CODE,
        LargerGain(OPTIMIZED, FIRST, ("bf16", "fp32")),
        "skinny-matmul-*",
        "dtype in ['bf16', 'fp32']",
    ),
    Claim(
        "In fp32 the vector reducer is 1.136x as fast as the tile-shaped one, in the median",
        STUDY_CODE,
        about(OPTIMIZED, FIRST, 1.136),
        "skinny-matmul-fp32",
    ),
    Claim(
        "With ReLU the vector reducer is 1.082x as fast as the tile-shaped one, in the median",
        STUDY_CODE,
        about(OPTIMIZED, FIRST, 1.082),
        EPILOGUE,
    ),
    Claim(
        "Without an epilogue the vector reducer is 1.080x as fast as the tile-shaped one, in the median",
        STUDY_CODE,
        about(OPTIMIZED, FIRST, 1.080),
        PLAIN,
    ),
    Claim(
        "In fp16 the vector reducer is 1.083x as fast as the tile-shaped one, in the median",
        STUDY_CODE,
        about(OPTIMIZED, FIRST, 1.083),
        "skinny-matmul-fp16",
        unlike="fp16 takes the configs that were searched in bf16 here",
    ),
    Claim(
        "One launch that adds atomically beats the two launches (28 of 28; there in TLX)",
        STUDY_TLX,
        Ahead(ATOMIC, VECTOR),
        PLAIN,
        there=IN_TRITON,
        unlike=NOT_ITS_TLX,
    ),
    Claim(
        "One launch that adds atomically is 1.045x as fast as the two launches, in the median (there in TLX)",
        STUDY_TLX,
        about(ATOMIC, VECTOR, 1.045),
        PLAIN,
        there=IN_TRITON,
        unlike=NOT_ITS_TLX,
    ),
    Claim(
        "In fp16, one launch that adds atomically beats the two launches (27 of 28; there in TLX)",
        STUDY_TLX,
        Ahead(ATOMIC, VECTOR),
        "skinny-matmul-fp16",
        there=IN_TRITON,
        unlike=NOT_ITS_TLX,
    ),
    Claim(
        "In fp16, one launch that adds atomically is 1.027x as fast, in the median (there in TLX)",
        STUDY_TLX,
        about(ATOMIC, VECTOR, 1.027),
        "skinny-matmul-fp16",
        there=IN_TRITON,
        unlike=NOT_ITS_TLX,
    ),
    Claim(
        "With ReLU, one launch that adds atomically beats custom-op autotuning on every shape (28 of 28; there in TLX)",
        STUDY_TLX,
        Ahead(ATOMIC, FUSED_OP, 1.0),
        EPILOGUE,
        there="its own kernel, one launch in TLX; here this project's, in Triton",
        unlike=NOT_ITS_TLX,
    ),
    *(
        Claim(
            f"In {dtype}, without an epilogue, it does so, too (28 of 28; there in TLX)",
            STUDY_TLX,
            Ahead(ATOMIC, MM_OP, 1.0),
            f"skinny-matmul-{dtype}",
            there="its own kernel, one launch in TLX; here this project's, in Triton",
            unlike=NOT_ITS_TLX,
        )
        for dtype in ("bf16", "fp16")
    ),
    Claim(
        "One launch in TLX needs 1 / split of the two launches' workspace",
        STUDY_TLX,
        WorkspaceShare(TLX, VECTOR),
        EPILOGUE,
        there=OF_TLX,
    ),
    Claim(
        "The order in which splits add atomically differs from call to call",
        STUDY_TLX,
        RepeatsEqual((TLX,), always=False),
        EPILOGUE,
        there="its own kernel; here this project's, in TLX",
    ),
    Claim(
        "With ReLU, one launch in TLX beats the two launches in Triton (26 of 28 and a tie)",
        STUDY_TLX,
        Ahead(TLX, VECTOR),
        EPILOGUE,
        there=OF_TLX,
        unlike=NOT_ITS_TLX,
    ),
    Claim(
        "With ReLU, one launch in TLX is 1.036x as fast as the two launches in Triton, in the median",
        STUDY_TLX,
        about(TLX, VECTOR, 1.036),
        EPILOGUE,
        there=OF_TLX,
        unlike=NOT_ITS_TLX,
    ),
    Claim(
        "Splitting K pays where M and N are small and K is deep",
        TUTORIAL,
        SplittingPays((f"{V5}@s*",)),
    ),
    Claim(
        "The semaphore makes the blocks of a tile add in order",
        TUTORIAL,
        RepeatsEqual(V5_SPLIT),
    ),
    Claim(
        "Only where there is more than one split does a tile have a semaphore",
        TUTORIAL,
        NoWorkspaceUnsplit((f"{V5}@s*",)),
        note="as the kernel here declares it, written after the listing, which asks whether there are 0 splits",
    ),
    Claim(
        "A tensor of requires_clean is zero before each launch, and the last block resets it",
        TUTORIAL,
        RequiresCleanResets(),
    ),
    Claim(
        "tl.reduce is about 2.5x slower than unrolled loads",
        OR_REDUCE,
        about(UNROLLED, REDUCED, 2.5),
        "or_reduce-int64",
        triton="3.4",
    ),
    Claim(
        "tl.reduce is up to 3.5x slower for a small K known when compiling",
        OR_REDUCE,
        about(UNROLLED, REDUCED, 3.5, "largest"),
        "or_reduce-int64",
        triton="3.4",
    ),
    Claim(
        "At K = 4 there is little or nothing to gain (1.01x and 1.19x)",
        OR_REDUCE,
        between(UNROLLED, REDUCED, 1.01, 1.19),
        "or_reduce-int64",
        "k == 4",
        triton="3.4",
    ),
    Claim(
        "A constant tile shows the same slowdown: it is the reduction, not the loads",
        OR_REDUCE,
        about(f"{OR_STUDY}.control_unrolled", f"{OR_STUDY}.control_reduce", 2.5),
        "or_reduce-control",
        triton="3.4",
    ),
    Claim(
        "The compiler does not unroll tl.reduce over an axis whose length it knows",
        OR_REDUCE,
        ShownByTest("tests/test_published.py", "test_triton_unrolls_the_or_reduce_of_a_known_length", holds=False),
        note="under Triton 3.4, too: lanes share K, and exchange in 2 or 3 shuffles a value, without a loop",
    ),
    Claim(
        "Products of inference are bound by memory",
        W4A16,
        MemoryBound(("*",)),
        "w4a16-square",
    ),
    Claim(
        "SplitK is ahead of data parallel at both M, at every N = K, on each GPU",
        W4A16,
        Ahead(BY_SPLIT, DATA_PARALLEL, 1.0),
        "w4a16-square",
        gpus=ITS_GPUS,
        there="its Table 1 has 0.01 and 0.07 TFLOPS at N = K = 512",
    ),
    Claim(
        "SplitK is 124% faster than data parallel on average on an H100",
        W4A16,
        about(BY_SPLIT, DATA_PARALLEL, 2.24, "mean"),
        "w4a16-square",
        gpus=ITS_H100,
    ),
    Claim(
        "SplitK is 295% faster than data parallel at its peak",
        W4A16,
        about(BY_SPLIT, DATA_PARALLEL, 3.95, "largest"),
        "w4a16-square",
        gpus=ITS_H100,
        there="the largest of its tables of the H100 is 7.0",
    ),
    Claim(
        "The best split on an H100 is 8",
        W4A16,
        BestSplit((BY_SPLIT,), 8),
        "w4a16-square",
        gpus=ITS_H100,
    ),
    Claim(
        "SplitK is 65% faster than data parallel on average on an A100",
        W4A16,
        about(BY_SPLIT, DATA_PARALLEL, 1.65, "mean"),
        "w4a16-square",
        gpus=("A100",),
    ),
    Claim(
        "SplitK is 114% faster than data parallel on average on an A100 of 40 GB",
        W4A16,
        about(BY_SPLIT, DATA_PARALLEL, 2.14, "mean"),
        "w4a16-square",
        gpus=("A100-PCIE-40GB",),
        there="it is the mean of its Table 3, of the H100 at M = 1",
    ),
    Claim(
        "The best split on an A100 is 4",
        W4A16,
        BestSplit((BY_SPLIT,), 4),
        "w4a16-square",
        gpus=("A100",),
    ),
    Claim(
        "On an A100 SplitK has 61% more waves per SM",
        W4A16,
        Waves(blocks=(512, 128), blocks_per_sm=(5, 2), claimed=1.61),
        there="of the grids and limits of its Table 7",
    ),
    Claim(
        "From 4 splits to 16 more is lost the larger N = K (seen on an A100)",
        W4A16,
        MoreSplitsLose((BY_SPLIT,), few=4, more=16),
        "w4a16-square",
        gpus=("A100",),
    ),
    Claim(
        "An A100 of less bandwidth (31%) gains more",
        W4A16,
        Untestable("needs rows of two A100 models"),
        there="by its Table 9, 1.5 and 2.0 TB/s, it is 25% less",
    ),
    Claim("SplitK gains more on a GPU of more SMs", W4A16, Untestable("needs rows of two GPU models, side by side")),
    Claim(
        "An H100 has 33% more multiprocessors than an A100",
        W4A16,
        Untestable(
            "no kernel shows it: by NVIDIA's data sheets it is 132 (SXM) or 114 (PCIe) to 108, so 22% or 6% more"
        ),
    ),
    Claim(
        f"SplitK is 1.90 times as fast as data parallel (27.90 and 52.93 us; {NSIGHT})",
        W4A16,
        about(f"{SPLIT_K}@s4", DATA_PARALLEL, 52.93 / 27.90),
        "w4a16-square",
        NSIGHT_CASE,
        gpus=ITS_GPUS,
        there="27.90 us are 19.2 TFLOPS, and its Tables 4 to 6 have 2.2 to 4.5 there, so their times hold more than "
        "the kernel (inferred)",
    ),
    Claim(
        f"SplitK has 1.94 times the memory throughput (313 and 161 GB/s; {NSIGHT})",
        W4A16,
        Counted(SPLIT_K, DATA_PARALLEL, {"dram_pct": 313 / 161}),
        "w4a16-square",
        NSIGHT_CASE,
        gpus=ITS_GPUS,
    ),
    Claim(
        f"SplitK doubles the SMs' utilization and has nearly four times the occupancy ({NSIGHT})",
        W4A16,
        Counted(SPLIT_K, DATA_PARALLEL, {"sm_pct": 43.05 / 20.75, "occupancy_pct": 27.75 / 7.55}),
        "w4a16-square",
        NSIGHT_CASE,
        gpus=ITS_GPUS,
    ),
    Claim(
        f"Occupancy and memory throughput rise about as the speed does ({NSIGHT})",
        W4A16,
        Proportional((52.93, 27.90), {"memory throughput": (313, 161), "occupancy": (27.75, 7.55)}),
    ),
    Claim(
        f"SplitK launches four times as many blocks ({NSIGHT})",
        W4A16,
        Counted(SPLIT_K, DATA_PARALLEL, {"grid_blocks": 4.0}, alike=("block_m", "block_n")),
        "w4a16-square",
        NSIGHT_CASE,
        there="4 splits, one tile in both",
    ),
    Claim(
        f"SplitK takes 0.61 times the registers per thread (92 and 150; {NSIGHT})",
        W4A16,
        Counted(SPLIT_K, DATA_PARALLEL, {"registers_per_thread": 92 / 150}),
        "w4a16-square",
        NSIGHT_CASE,
        gpus=ITS_ARCHITECTURES,
    ),
    Claim(
        f"SplitK uses 0.61 times the shared memory (102.40 and 167.94 kB; {NSIGHT})",
        W4A16,
        Untestable(
            "102.40 and 167.94 kB are 100 and 164 KiB, to which an SM of its GPUs can be set, and not what a block "
            "takes: the 5 and 2 blocks of the same table would need 512 and 336 kB of an SM"
        ),
    ),
    Claim(
        f"Registers let 1.67 times as many blocks onto an SM, shared memory 2.5 times (5 and 3, 5 and 2; {NSIGHT})",
        W4A16,
        Counted(SPLIT_K, DATA_PARALLEL, {"register_limit_blocks": 5 / 3, "shared_limit_blocks": 5 / 2}),
        "w4a16-square",
        NSIGHT_CASE,
        gpus=ITS_ARCHITECTURES,
    ),
    Claim(
        f"The data-parallel kernel is limited by shared memory (2 blocks, and 3 by registers; {NSIGHT})",
        W4A16,
        LimitedBySharedMemory(DATA_PARALLEL),
        "w4a16-square",
        NSIGHT_CASE,
        gpus=ITS_ARCHITECTURES,
    ),
    Claim(
        f"SplitK has 3.7 times the active warps, 3.4 times the eligible (4.45 and 1.21, 0.67 and 0.20; {NSIGHT})",
        W4A16,
        Counted(SPLIT_K, DATA_PARALLEL, {"active_warps": 4.45 / 1.21, "eligible_warps": 0.67 / 0.20}),
        "w4a16-square",
        NSIGHT_CASE,
        gpus=ITS_GPUS,
    ),
    Claim(
        f"SplitK has 2 times the issued warps (0.43 and 0.19; {NSIGHT})",
        W4A16,
        Counted(SPLIT_K, DATA_PARALLEL, {"issue_pct": 0.43 / 0.19}),
        "w4a16-square",
        NSIGHT_CASE,
        gpus=ITS_GPUS,
    ),
    Claim(
        f"SplitK issues 2.3 times the instructions per cycle (1.72 and 0.75, in its text a 1.3x increase; {NSIGHT})",
        W4A16,
        Counted(SPLIT_K, DATA_PARALLEL, {"instructions_per_cycle": 1.72 / 0.75}),
        "w4a16-square",
        NSIGHT_CASE,
        gpus=ITS_GPUS,
    ),
    Claim(
        "Grouped program order loads 27 + 27 blocks instead of 9 + 81, 36 fewer",
        GENERATED,
        BlocksLoaded(blocks=9, group=3, by_row=(9, 81), grouped=(27, 27)),
    ),
    Claim(
        "With groups of 3 rows, a program processes 3 tiles",
        GENERATED,
        TilesOfAProgram(blocks=9, group=3, claimed=3),
    ),
    Claim(
        "The kernel of Triton's tutorial takes full rows and columns, and skips tiling",
        GENERATED,
        UntiledK(TRITON_TUTORIAL),
        SWEEP,
    ),
    Claim(
        "Matrix multiplication is bound by computing",
        GENERATED,
        ComputeBound(("*",)),
        SWEEP,
    ),
    Claim(
        "Skinny matrix multiplication is bound by computing too",
        GENERATED,
        ComputeBound(("*",)),
        PLAIN,
        there="said of all products; here of the decompose-K study's shapes",
    ),
    Claim(
        "torch.compile's max-autotune selects the fastest of the kernels that it profiles",
        GENERATED,
        NeverAhead(BASELINE, COMPILED),
        SWEEP,
        there="max-autotune; here without its CUDA graph, which copies the inputs",
        unlike="its repository's max-autotune profiles only Triton's templates; here torch.mm's kernel is among them",
    ),
    Claim(
        "Makora's matmul takes 22 us, eager torch 24 and torch.compile 19",
        GENERATED,
        Untestable(
            "the kernel in the picture is layer_norm_fwd_kernel, its prompt is empty and its GPU a B200: "
            "no product of matrices was timed"
        ),
        setup="B200, versions not named",
    ),
    Claim(
        "Makora's first attempt fails two of four steps; the second, of 16 us, is better than the third; none runs on "
        "an MI300X",
        GENERATED,
        Untestable(
            "they are attempts of a service that is not here; the picture crowns the first, of 14 us, and its kernel "
            "is no product of matrices"
        ),
        setup="B200 and MI300X, versions not named",
    ),
    Claim(
        "Helion decides on the tiling",
        GENERATED,
        Untestable("it is what Helion is made for, and no figure: its kernels here name no tile either"),
    ),
    Claim(
        "Triton's tutorial kernel has 0.85x of eager's speed over the sweep on an H100",
        GENERATED_CODE,
        about(TRITON_TUTORIAL, BASELINE, 0.85, "geometric mean"),
        SWEEP,
        SWEEP_CASES,
    ),
    Claim(
        "torch.compile has 0.998x of eager's speed over the sweep on an H100",
        GENERATED_CODE,
        about("torch/compile.default", BASELINE, 0.998, "geometric mean"),
        SWEEP,
        SWEEP_CASES,
    ),
    Claim(
        "torch.compile with max-autotune, of only Triton's templates, has 0.884x",
        GENERATED_CODE,
        about("torch/compile.triton_templates", BASELINE, 0.884, "geometric mean"),
        SWEEP,
        SWEEP_CASES,
    ),
    Claim(
        "Helion has 0.93x of eager's speed over the sweep on an H100",
        GENERATED_CODE,
        about("helion/*", BASELINE, 0.93, "geometric mean"),
        SWEEP,
        SWEEP_CASES,
        unlike="Helion searched by its quick effort here, which decides more than the language does",
    ),
    Claim(
        "KernelLLM's kernel has 0.365x of eager's speed over the sweep on an H100",
        GENERATED_CODE,
        about(f"{TRITON_TUTORIAL}.kernelllm", BASELINE, 0.365, "geometric mean"),
        SWEEP,
        SWEEP_CASES,
    ),
    Claim(
        "Makora's kernel has 0.325x of eager's speed over the sweep on an H100",
        GENERATED_CODE,
        about(f"{TRITON_TUTORIAL}.makora", BASELINE, 0.325, "geometric mean"),
        SWEEP,
        SWEEP_CASES,
    ),
    Claim(
        "On an RTX 5090 Triton's tutorial kernel, max-autotune, torch.compile, Helion, KernelLLM and Makora have "
        "1.016, 1.03, 0.998, 1.013, 0.70 and 0.64x of eager's speed over the sweep; on an MI300X 0.595, 0.56, 0.509, "
        "0.559, 0.355 and 0.441x",
        GENERATED_CODE,
        Untestable("needs rows of an RTX 5090 and of an MI300X; this project measures on NVIDIA's Hopper"),
        setup="RTX 5090 and MI300X, versions not named; bf16",
    ),
    Claim(
        "Plain torch.compile never picks decompose-K for the router, as K < 32 N",
        OWN,
        NeverDecomposes(("torch/compile.default", "torch/compile.max_autotune*")),
        "router",
        ROUTER_CASES,
    ),
)
