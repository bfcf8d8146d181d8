"""What the kernels are compiled to, for GPUs that need not be here: within the limits, and with the instructions that
they are written for."""

from dataclasses import replace
from itertools import filterfalse

import compiled
import pytest
import torch
import triton
from compiled import built
from cuda_source import cuda_sources
from matmul_cases import lacks
from said import on_stderr

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench import resources as command
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.diagnostics import resources
from triton_vs_tilus.bench.diagnostics.ptx import GpuKernel, classify, listing
from triton_vs_tilus.bench.diagnostics.resources import Built, Task, compile_all, tasks
from triton_vs_tilus.bench.show.resources import read
from triton_vs_tilus.common import compilers
from triton_vs_tilus.common.kernel import LANGUAGES, Kernel, Language
from triton_vs_tilus.common.or_reduce import OrReduce
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.w4a16 import W4A16Matmul

pytestmark = compiled.on_one_worker

KERNELS = [kernel for kernel in contenders.all_contenders() if kernel.language in LANGUAGES]
FIRST_VARIANTS = list({(kernel.language, kernel.name): kernel for kernel in reversed(KERNELS)}.values())
WIDE = Matmul(16, 256, 7168)  # rows of 16-byte multiples in either layout
WIDE_NK = replace(WIDE, layout=Layout.NK)
ROWS_OF_16 = OrReduce(256, 512, 16)
FOUR_BITS = W4A16Matmul(16, 4096, 4096)
NARROW = Matmul(5, 18, 130, torch.float16)  # rows of 4-byte multiples alone

# Kernels that may spill, and why that is the better choice.
SPILLS = {
    "tilus/cluster": "12 bytes, at [K, N], in a config of the kernel before; ptxas stops at 80 registers by itself",
    "tilus/last_arriver": "16 bytes, in the config that the search found fastest at [K, N]",
    "triton/w4a16.sliced_k": "12 bytes in Triton 3.7, with 16 rows, in the config that the search found fastest in 3.6",
    "tilus/data_parallel": "24 bytes, in the heuristic at [K, N], where ptxas stops at 64 registers by itself",
}

# Kernels one of whose launches is torch's, and what it does.
ALSO_TORCH = {
    "triton/decompose_k.vector_unfused": "the epilogue",
    "tilus/decompose_k.vector_unfused": "the epilogue",
    "triton/w4a16.atomic_in_place": "zeros in C",
}


def is_heuristic(task: Task) -> bool:
    """Whatever else the config is: a search may have found the same."""
    return task.config == task.kernel.default_config(task.problem)


def shipped_tasks() -> list[Task]:
    """Of each kernel what launchers take for the problems on Hopper; of each file the tuned config for the other layout
    of the weight, and on Ampere, of which there is no tuned table, the heuristic."""
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = False  # what the installed Triton only interprets is not compiled
        return [
            *tasks(KERNELS, [WIDE_NK, ROWS_OF_16, FOUR_BITS], ["sm_90a"], others=0),
            *filter(is_heuristic, tasks(FIRST_VARIANTS, [WIDE_NK], ["sm_80"], others=0)),
            *filterfalse(is_heuristic, tasks(FIRST_VARIANTS, [replace(WIDE, layout=Layout.KN)], ["sm_90a"], others=0)),
        ]


SHIPPED = compiled.wanted(*shipped_tasks())


def task_id(task: Task) -> str:
    return f"{task.kernel.full_name}-{task.problem.name}-{task.origin}-{task.target}"


@pytest.mark.parametrize("task", SHIPPED, ids=task_id)
def test_shipped_configs_compile_and_fit_without_spills(task):
    outcome = built(task)
    if task.target == "sm_80" and outcome.broken:
        pytest.skip(outcome.error or "; ".join(found.over("sm_80") for found in outcome.gpu_kernels))
    assert not outcome.error
    assert len(outcome.gpu_kernels) == task.kernel.launches - (task.kernel.full_name in ALSO_TORCH)
    for gpu_kernel in outcome.gpu_kernels:
        assert not gpu_kernel.over(task.target)
        assert gpu_kernel.registers > 0 and gpu_kernel.threads % 32 == 0
        if gpu_kernel.spills:
            assert task.kernel.full_name in SPILLS, f"{gpu_kernel.name} spills {gpu_kernel.spills} bytes a thread"


WIDE_COPIES = {"cp.async 16 B", "bulk load", "tensor load", "bulk store", "tensor store"}


@pytest.mark.parametrize("task", SHIPPED, ids=task_id)
def test_tensor_cores_are_fed_by_copies_of_16_bytes_and_more(task):
    # A step's scales are 2 bytes a column of the tile, for the 32 lanes of a warp, its zero points as many or fewer.
    narrow = {"cp.async 4 B", "cp.async 8 B"} if task.problem == FOUR_BITS else set()
    for gpu_kernel in built(task).gpu_kernels:
        # Pushes take sums to other blocks.
        copies = {each for each in gpu_kernel.instructions.get("async copies", {}) if not each.startswith("st.async")}
        if "tensor cores" in gpu_kernel.instructions:
            assert copies & WIDE_COPIES
        assert copies <= WIDE_COPIES | narrow


SERIAL = [task for task in SHIPPED if task.kernel.protocol is Protocol.SERIAL and task.config.split_k > 1]


@pytest.mark.parametrize("task", SERIAL, ids=task_id)
def test_turns_are_acquired_and_released(task):
    (gpu_kernel,) = built(task).gpu_kernels
    ordered = set(gpu_kernel.instructions["atomics and order"])
    if task.kernel.language is Language.TILUS:
        assert {"ld.acquire.gpu", "st.release.gpu"} <= ordered
    assert any(".acquire.gpu" in name for name in ordered)
    assert any(".release.gpu" in name for name in ordered)


COUNTED = {Protocol.ATOMIC, Protocol.LAST_ARRIVER, Protocol.STREAM_K}
# No split finishes for the others: each adds to C as it stands.
UNCOUNTED = {"triton/w4a16.atomic_in_place"}
ARRIVING = [task for task in SHIPPED if task.kernel.protocol in COUNTED and task.kernel.full_name not in UNCOUNTED]


@pytest.mark.parametrize("task", ARRIVING, ids=task_id)
def test_arrivals_are_counted_by_one_atomic_that_acquires_and_releases(task):
    (gpu_kernel,) = built(task).gpu_kernels
    counting = {
        name: times for name, times in gpu_kernel.instructions["atomics and order"].items() if "acq_rel" in name
    }
    assert list(counting.values()) == [1]
    assert ".gpu" in next(iter(counting))


RELEASING = {
    "triton/atomic": WIDE_NK,
    "triton/last_arriver": WIDE_NK,
    "triton/stream_k": WIDE_NK,
    "triton/semaphore.in_place": WIDE_NK,
    "triton/semaphore.fp32": WIDE_NK,
    "triton/w4a16.atomic": FOUR_BITS,
    "triton/w4a16.last_arriver": FOUR_BITS,
    "triton/w4a16.semaphore": FOUR_BITS,
}
ZEROING = ["triton/atomic", "triton/w4a16.atomic"]


def listing_of(full_name: str) -> tuple[tuple[str, str], ...]:
    """The instructions of one of RELEASING, in the config of its own rule."""
    kernel, problem = contenders.find(full_name), RELEASING[full_name]
    (outcome,) = compile_all([Task(kernel, problem, kernel.default_config(problem), "heuristic", "sm_90a")])
    assert not outcome.error
    (found,) = outcome.gpu_kernels
    return found.listing


@pytest.mark.parametrize("full_name", RELEASING)
def test_all_threads_meet_between_their_last_store_and_a_release(full_name):
    """One thread releases what all threads of the block have stored or added."""
    ordered = [
        name
        for group, name in listing_of(full_name)
        if group in ("global stores", "atomics and order") or name == "bar.sync"
    ]
    releases = [place for place, name in enumerate(ordered) if ".release" in name or ".acq_rel" in name]
    assert releases
    assert {ordered[place - 1] for place in releases} == {"bar.sync"}


@pytest.mark.parametrize("full_name", ZEROING)
def test_all_threads_meet_between_the_loads_of_the_sums_and_the_zeros(full_name):
    """An element may be loaded by one thread and zeroed by another."""
    whole = listing_of(full_name)
    last_load = max(place for place, (group, _) in enumerate(whole) if group == "global loads")
    after = [name for group, name in whole[last_load:] if group == "global stores" or name == "bar.sync"]
    stored_c = next(place for place, name in enumerate(after) if name != "bar.sync")
    assert "bar.sync" in after[stored_c:]
    assert after[-1] != "bar.sync"


OR_LOADS = {"reduce": "16 B", "wide": "16 B", "shuffle": "16 B", "fold": "16 B", "unrolled": "8 B", "generated": "8 B"}


@pytest.mark.parametrize(
    "task", [task for task in SHIPPED if task.problem == ROWS_OF_16 and task.kernel.variant in OR_LOADS], ids=task_id
)
def test_rows_of_int64_are_read_as_wide_as_the_variant_says(task):
    """Whole tiles by vectors, single columns by elements."""
    (gpu_kernel,) = built(task).gpu_kernels
    assert set(gpu_kernel.instructions["global loads"]) == {OR_LOADS[task.kernel.variant]}


@pytest.mark.parametrize(("one", "other"), [("reduce", "builtin"), ("unrolled", "generated")])
def test_two_ways_to_write_a_reduction_compile_to_the_same(one, other):
    def gpu_kernel(variant: str) -> GpuKernel:
        name = f"triton/or_reduce.{variant}"
        task = next(task for task in SHIPPED if task.problem == ROWS_OF_16 and task.kernel.full_name == name)
        return replace(built(task).gpu_kernels[0], name="")

    assert gpu_kernel(one) == gpu_kernel(other)


def of(full_name: str, problem: Matmul, **changes: object) -> Task:
    kernel = contenders.find(full_name)
    return Task(kernel, problem, replace(kernel.default_config(problem), **changes), "space", "sm_90a")


NARROW_TASK, IMPOSSIBLE, POSSIBLE = compiled.wanted(
    of("tilus/semaphore.fp32", NARROW),
    of("triton/decompose_k.tile", WIDE, block_k=8),
    of("triton/decompose_k.tile", WIDE),
)


def test_narrow_rows_take_narrow_copies():
    (gpu_kernel,) = built(NARROW_TASK).gpu_kernels
    assert set(gpu_kernel.instructions["async copies"]) == {"cp.async 4 B"}


def test_an_impossible_config_is_an_error():
    outcome = built(IMPOSSIBLE)
    assert outcome.error and outcome.broken and not outcome.gpu_kernels


def test_what_was_compiled_is_not_compiled_again(monkeypatch):
    first = built(POSSIBLE)
    assert [found.name for found in first.gpu_kernels] == ["_matmul_partials_kernel", "_reduce_tile_kernel"]

    asked = []
    monkeypatch.setattr(resources.Children, "each", lambda children, function, arguments: asked.extend(arguments) or [])
    assert compile_all([POSSIBLE]) == [first]
    assert not asked


def test_figures_outlast_a_cache_that_cannot_be_written(tmp_path, caplog):
    (tmp_path / "a file").touch()
    assert compile_all([POSSIBLE], tmp_path / "a file" / "cache", workers=1) == [built(POSSIBLE)]
    assert caplog.messages == [
        f"{tmp_path / 'a file' / 'cache'} cannot be written: what was compiled is compiled again next time"
    ]


@pytest.mark.parametrize("name", ["semaphore.fp32", "cluster"])
def test_without_its_launcher_a_source_is_compiled_to_the_same(name, tmp_path, monkeypatch):
    if compilers.nvcc() is None:
        pytest.skip("tilus compiles with nvcc, which is not found")
    kernel = contenders.find(f"tilus/{name}")
    (text,) = cuda_sources(kernel, WIDE_NK, kernel.default_config(WIDE_NK), tmp_path)
    file, made = tmp_path / "source.cu", []
    for cut in (resources.device_half, lambda text: text):
        monkeypatch.setattr(resources, "device_half", cut)
        file.write_text(text)
        resources.nvcc(file, "sm_90a")
        made.append(file.with_suffix(".ptx").read_text())
    assert made[0] == made[1]


def test_without_nvcc_tilus_is_skipped_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(compilers, "nvcc", lambda: None)
    (outcome,) = compile_all([of("tilus/semaphore.fp32", WIDE)], tmp_path)
    assert "nvcc" in outcome.skipped and not outcome.gpu_kernels and not outcome.broken


def test_every_kernel_has_tasks_for_every_target():
    todo = list(tasks(KERNELS, [WIDE, ROWS_OF_16, FOUR_BITS], ["sm_80", "sm_90a"]))
    for kernel in KERNELS:
        own = [task for task in todo if task.kernel is kernel]
        if lacks(kernel):
            assert not own
            continue
        assert {task.target for task in own} == {"sm_80", "sm_90a"}
        assert any(map(is_heuristic, own)) and any(task.origin == "space" for task in own)
        assert all(kernel.supports(task.problem, task.config) is None for task in own)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { %f1 }, { %r1 }", ("tensor cores", "mma.sync")),
        ("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%f1}, %rd1", ("tensor cores", "wgmma.mma_async")),
        ("wgmma.commit_group.sync.aligned", None),
        ("cp.async.cg.shared.global.L2::256B [%r1], [%rd1], 16, %r2", ("async copies", "cp.async 16 B")),
        ("cp.async.ca.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x4, %r2", ("async copies", "cp.async 4 B")),
        ("cp.async.commit_group", None),
        ("cp.async.bulk.commit_group", None),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier [%r1], [%rd1]", ("async copies", "tensor load")),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1], [%r1]", ("async copies", "tensor store")),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1]", ("async copies", "bulk reduce")),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%r1], {%f1}, [%r2]",
            ("async copies", "st.async 8 B"),
        ),
        ("ld.global.nc.L1::no_allocate.L2::128B.v4.b32 { %r1 }, [ %rd1 + 0 ]", ("global loads", "16 B")),
        ("ld.global.b16 %rs1, [%rd1]", ("global loads", "2 B")),
        ("ld.v2.f32 {%f1, %f2}, [%rd1]", ("global loads", "8 B generic")),
        ("ld.param.u64 %rd1, [param]", None),
        ("ld.shared.v4.b32 {%r1}, [%r5]", None),
        ("st.global.v2.b64 [%rd1], {%rd2, %rd3}", ("global stores", "16 B")),
        ("st.global.bf16x2 [%rd1], %r1", ("global stores", "4 B")),
        ("ld.acquire.gpu.b32 %r1, [%rd1]", ("atomics and order", "ld.acquire.gpu")),
        ("st.release.gpu.b32 [%rd1], %r1", ("atomics and order", "st.release.gpu")),
        ("ld.volatile.global.u32 %r1, [%rd1]", ("atomics and order", "ld.volatile")),
        ("atom.global.gpu.acq_rel.add.u32 %r1, [%rd1], 1", ("atomics and order", "atom.acq_rel.gpu.add")),
        ("red.global.add.f32 [%rd1], %f1", ("atomics and order", "red.relaxed.add")),
        ("atom.shared.add.u32 %r1, [%r2], 1", ("atomics and order", "atom.shared.relaxed.add")),
        ("fence.acq_rel.gpu", ("atomics and order", "fence.acq_rel.gpu")),
        ("griddepcontrol.wait", ("atomics and order", "griddepcontrol.wait")),
        ("bar.sync 0", ("barriers", "bar.sync")),
        ("barrier.sync 1, 128", ("barriers", "bar.sync")),
        ("barrier.cta.red.or.pred %p1, 0, %p2", ("barriers", "bar.red")),
        ("barrier.cluster.arrive.release.aligned", ("barriers", "barrier.cluster")),
        ("mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2", ("barriers", "mbarrier.try_wait")),
        ("add.s32 %r1, %r2, %r3", None),
    ],
)
def test_classes_of_instructions(statement, expected):
    opcode, _, operands = statement.partition(" ")
    assert classify(opcode, operands) == expected


def test_a_listing_sees_through_predicates_labels_braces_and_comments():
    ptx = """(
        .param .u64 kernel_param_0
    )
    .maxntid 32, 1, 1
    {
        .reg .b32 %r<9>;
        .loc 1 2 3
        @%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
    $L__BB0_1: // bar.sync 0;
        // begin inline asm
        { .reg .pred P; @!P bar.sync 0; }
        /* bar.sync 0; */
        {ld.acquire.gpu.b32 %r5, [%rd2];}
        // end inline asm
        .pragma "nounroll";
        bar.sync 0;
        @%p2 bra $L__BB0_1;
    }
    """
    assert list(listing(ptx)) == [
        ("global loads", "16 B"),
        ("barriers", "bar.sync"),
        ("atomics and order", "ld.acquire.gpu"),
        ("barriers", "bar.sync"),
    ]


def gpu_kernel(**figures: int) -> GpuKernel:
    fitting = dict(
        threads=128, registers=64, static_shared=0, dynamic_shared=0, spill_stores=0, spill_loads=0, stack=0, trips=1
    )
    return GpuKernel(
        "kernel", **(fitting | figures), listing=(("tensor cores", "mma.sync"),) * 8, ptx_loop=(), sass_loop=()
    )


def test_limits_are_of_the_target():
    assert gpu_kernel().over("sm_80") == ""
    assert gpu_kernel(dynamic_shared=200 * 1024).over("sm_90a") == ""
    assert "204800 bytes of shared memory" in gpu_kernel(dynamic_shared=200 * 1024).over("sm_80")
    assert "73728 registers in a block" in gpu_kernel(registers=66, threads=1024).over("sm_90a")


def test_table_has_a_line_for_each_gpu_kernel_and_each_reason(monkeypatch, capsys):
    found = gpu_kernel(dynamic_shared=200 * 1024), gpu_kernel(spill_stores=4, spill_loads=12)

    def outcome(task: Task) -> Built:
        return Built(task, found) if task.kernel.language is Language.TRITON else Built(task, error="no such layout")

    monkeypatch.setattr(resources, "compile_all", lambda todo: [outcome(task) for task in todo])
    chosen = ["--shape", "16x256x7168", "--only", "semaphore.fp32", "--target", "sm_80", "--markdown"]
    assert command.main(chosen) == 1
    shown = capsys.readouterr().out
    assert "16x256x7168-bf16-nk, sm_80" in shown
    assert shown.count("triton/semaphore.fp32") * 2 == shown.count("| kernel | 128 | 64 |")
    assert "204800 bytes of shared memory, over 166912" in shown
    assert "no such layout" in shown
    assert "mma.sync x8" in shown


def test_matched_tasks_are_of_one_config_and_a_file_holds_what_they_became(monkeypatch, tmp_path):
    found = (gpu_kernel(),)
    monkeypatch.setattr(resources, "compile_all", lambda todo: [Built(task, found) for task in todo])
    file = tmp_path / "resources.json"
    chosen = ["--matched", "--only", "semaphore.fp32", "--only", "or_reduce", "--target", "sm_90a", "--json", str(file)]
    assert command.main(chosen) == 0
    records = {record.kernel: record for record in read(file)}
    mine, theirs = (records[f"{language}/semaphore.fp32"] for language in ("triton", "tilus"))
    assert mine.config.split()[:4] == theirs.config.split()[:4]
    assert {record.problem for record in (mine, theirs)} == {"16x256x7168-bf16-nk"}
    assert mine.gpu_kernels[0].figures["registers"] == found[0].registers
    assert {"triton/or_reduce.unrolled", "tilus/or_reduce.unrolled"} <= set(records)


def test_no_file_is_written_where_a_config_does_not_compile(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        resources,
        "compile_all",
        lambda todo: (
            [Built(task, (gpu_kernel(),)) for task in todo[1:]]
            + [Built(todo[0], (), error="Trace\nRuntimeError: Cannot find cuobjdump")]
        ),
    )
    file = tmp_path / "resources.json"
    assert command.main(["--matched", "--only", "semaphore.fp32", "--target", "sm_90a", "--json", str(file)]) == 1
    assert not file.exists()
    assert "1 of 2 did not compile" in (told := capsys.readouterr().err) and told.endswith("Cannot find cuobjdump\n")


def test_no_file_is_written_where_a_config_is_skipped(monkeypatch, tmp_path, capsys):
    """As all of tilus' are without nvcc."""
    skipped = "skipped: tilus compiles with nvcc, which is not found"

    def outcome(task: Task) -> Built:
        return Built(task, (gpu_kernel(),)) if task.kernel.language is Language.TRITON else Built(task, skipped=skipped)

    monkeypatch.setattr(resources, "compile_all", lambda todo: [outcome(task) for task in todo])
    file = tmp_path / "resources.json"
    assert command.main(["--matched", "--only", "semaphore.fp32", "--target", "sm_90a", "--json", str(file)]) == 1
    assert not file.exists()
    assert f"1 of 2 did not compile; tilus/semaphore.fp32: {skipped}" in capsys.readouterr().err


@pytest.mark.parametrize("to_file", [True, False])
def test_a_language_that_cannot_be_imported_is_a_failure(monkeypatch, tmp_path, capsys, to_file):
    reason = "kernels_tilus cannot be imported: AttributeError"
    monkeypatch.setattr(contenders, "not_importable", lambda: {Language.TILUS: reason})
    monkeypatch.setattr(resources, "compile_all", lambda todo: [Built(task, (gpu_kernel(),)) for task in todo])
    file = tmp_path / "resources.json"
    shown = ["--json", str(file)] if to_file else ["--markdown"]
    assert command.main(["--matched", "--only", "semaphore.fp32", "--target", "sm_90a", *shown]) == 1
    said = capsys.readouterr()
    assert reason in said.err and not file.exists()
    assert ("is not written" in said.err, "triton/semaphore.fp32" in said.out) == (to_file, not to_file)


def test_a_file_names_the_compiler_that_compiled(monkeypatch, tmp_path):
    """Of a published design in Triton, Triton's."""
    monkeypatch.setattr(resources, "compile_all", lambda todo: [Built(task, (gpu_kernel(),)) for task in todo])
    only = ["--only", "published_triton/decompose_k.first", "--shape", "16x256x7168", "--target", "sm_90a"]
    assert command.main([*only, "--json", str(tmp_path / "resources.json")]) == 0
    assert {record.compiler for record in read(tmp_path / "resources.json")} == {f"triton {triton.__version__}"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--only", "no_such_kernel"], "no_such_kernel"),
        (
            ["--json", "no/such/folder/resources.json"],
            "--json no/such/folder/resources.json: No such file or directory",
        ),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_compiled(arguments, told, capsys):
    assert run_command(command.main, arguments) == 2
    assert told in on_stderr(capsys)


def test_kernels_are_found_in_both_languages():
    assert {kernel.language for kernel in KERNELS} >= {Language.TRITON, Language.TILUS}
    assert all(isinstance(kernel, Kernel) for kernel in FIRST_VARIANTS)


def test_no_kernel_waits_for_a_load_before_it_issues_another():
    """Of the recorded kernels, at one config in both languages: the loads of straight code go out together."""
    trips = {one.kernel: [gpu.figures["trips"] for gpu in one.gpu_kernels] for one in read()}
    assert len(trips) > 30 and {max(of_launches) for of_launches in trips.values()} == {0, 1}


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--json", "resources.json", "--markdown"], "--markdown: not allowed with argument --json"),
        (["--matched", "--shape", "16x256x7168"], "--matched does not use --shape; accepted beside it: --target, "),
    ],
)
def test_flags_that_would_be_ignored_are_refused(capsys, flags, told):
    assert run_command(command.main, flags) == 2
    assert told in on_stderr(capsys)
