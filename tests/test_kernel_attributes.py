"""Both languages' kernels may have all registers of a block; tilus' without a cluster are kernels of blocks."""

import re
from pathlib import Path

import cuda_source
import pytest
import tilus
import tilus.backends.codegen
import torch
from cuda_source import cuda_sources
from tilus import drivers
from tilus.hidet.ir.builders import FunctionBuilder
from tilus.hidet.ir.primitives.cuda.setmaxnreg import setmaxnreg
from tilus.lang.instantiated_script import BuildOptions as OptionsOfTilus

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics.ptx import REGISTERS_OF_BLOCK, REGISTERS_OF_THREAD
from triton_vs_tilus.bench.diagnostics.resources import OTHER_OPERATIONS, runnable
from triton_vs_tilus.common.kernel import Language
from triton_vs_tilus.common.or_reduce import OrReduce
from triton_vs_tilus.common.plan import Launch
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import build_options
from triton_vs_tilus.kernels_tilus.configs import BandConfig
from triton_vs_tilus.kernels_tilus.launching import programs_only
from triton_vs_tilus.kernels_triton import launching as triton_launching

PROBLEMS = {"matmul": Matmul(256, 256, 1024, layout=Layout.NK), "or_reduce": OrReduce(16, 64, 16)}
PLAIN = {
    "tilus/data_parallel": BandConfig(16, 32, 64, 1, 4, 3),
    "tilus/decompose_k.vector_pdl": None,
    "tilus/last_arriver": BandConfig(64, 64, 64, 2, 4, 3, engine="wgmma"),
    "tilus/cluster": BandConfig(16, 64, 64, 1, 4, 3, engine="wgmma_swapped"),
    "tilus/or_reduce.shuffle": None,
}
CLUSTERS = {
    "tilus/cluster": BandConfig(16, 32, 64, 4, 4, 3),
    "tilus/last_arriver": BandConfig(64, 64, 128, 2, 4, 2, engine="wgmma_pairs"),
}
TRITON = [kernel for kernel in contenders.all_contenders() if kernel.language is Language.TRITON]
ATTRIBUTE = " __cluster_dims__(1, 1, 1)"
BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")
HEADER = "#include <cooperative_groups.h>\n"


@pytest.fixture
def as_upstream(monkeypatch):
    """Makes tilus write kernels as 0.2.0 does."""
    return lambda: monkeypatch.setattr(tilus.backends.codegen, "FunctionBuilder", FunctionBuilder)


def sources(name: str, config: BandConfig | None, folder: Path) -> list[str]:
    """Of each program of the kernel."""
    kernel = contenders.find(name)
    problem = PROBLEMS[kernel.op]
    cuda_source._SOURCES.clear()  # which are found by the program's text, the same with and without
    return cuda_sources(kernel, problem, config or kernel.default_config(problem), folder)


@pytest.mark.parametrize("kernel", TRITON, ids=lambda kernel: kernel.full_name)
def test_each_launch_of_triton_may_have_all_registers(kernel, monkeypatch):
    launched: list[Launch] = []
    monkeypatch.setattr(triton_launching, "_compiled", lambda launch, plan: launched.append(launch))
    problem = next(filter(None, (runnable(kernel, one) for one in (PROBLEMS["matmul"], *OTHER_OPERATIONS))))
    kernel.build(problem, kernel.default_config(problem))
    assert launched
    for launch in launched:
        registers, threads = launch.options["maxnreg"], 32 * launch.options["num_warps"]
        assert registers == min(REGISTERS_OF_THREAD, REGISTERS_OF_BLOCK // threads)


def with_all_registers(text: str) -> str:
    """What tilus writes, with the second number of the kernel's bounds."""
    written, count = BOUNDS.subn(r"__launch_bounds__(\1, 1)", text)
    assert count == 1
    return written


def lines(text: str) -> list[str]:
    """In an order of their own, without the invariants of loops: tilus numbers and hoists them as a set gives them."""
    return sorted(line for line in text.splitlines() if not re.search(r"\b(loop_invariant|affine_expr)", line))


@pytest.mark.parametrize("name", PLAIN)
def test_a_kernel_without_a_cluster_loses_the_attribute_and_has_all_registers(name, tmp_path, as_upstream):
    ours = sources(name, PLAIN[name], tmp_path)
    as_upstream()
    theirs = sources(name, PLAIN[name], tmp_path)
    assert all(text.count(ATTRIBUTE) == 1 and text.count(HEADER) == 1 for text in theirs)
    for our, their in zip(ours, theirs, strict=True):
        assert lines(our) == lines(with_all_registers(their).replace(ATTRIBUTE, "").replace(HEADER, ""))


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_kernel_of_clusters_keeps_them_and_has_all_registers(name, tmp_path, as_upstream):
    ours = sources(name, CLUSTERS[name], tmp_path)
    as_upstream()
    (our,), (their,) = ours, sources(name, CLUSTERS[name], tmp_path)
    assert lines(our) == lines(with_all_registers(their))
    assert "__cluster_dims__(" in our and ATTRIBUTE not in our


class Alone(tilus.Script):
    """One block that meets its cluster: itself."""

    def __call__(self, out_ptr: ~tilus.int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.cluster.sync()
        out = self.global_view(out_ptr, dtype=tilus.int32, shape=[32])
        self.store_global(out, self.register_tensor(dtype=tilus.int32, shape=[32], init=1), offsets=[0])


def test_a_plain_block_that_meets_its_cluster_has_the_header_for_it(tmp_path):
    source = cuda_source.source_of(Alone(), torch.empty(32, dtype=torch.int32), folder=tmp_path)
    assert "this_cluster().sync()" in source and HEADER in source and "__cluster_dims__" not in source


class Roles(tilus.Script):
    """A warpgroup gives registers to the other."""

    def __call__(self, out_ptr: ~tilus.int32):
        self.attrs.blocks, self.attrs.warps = 1, 8
        with self.thread_group(0, 128):
            setmaxnreg(24, "dec")
        with self.thread_group(128, 128):
            setmaxnreg(240, "inc")


def test_a_script_can_move_registers_between_warpgroups(tmp_path):
    """By a primitive of tilus' own, as notes/explicit.md says."""
    source = cuda_source.source_of(Roles(), torch.empty(1, dtype=torch.int32), folder=tmp_path)
    assert re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32 \d+", source) == [
        "setmaxnreg.dec.sync.aligned.u32 24",
        "setmaxnreg.inc.sync.aligned.u32 240",
    ]


@pytest.fixture
def cache(tmp_path):
    before = tilus.option.get_option("cache_dir")
    tilus.option.cache_dir(str(tmp_path))
    yield tmp_path
    tilus.option.cache_dir(before)


def test_what_was_built_with_the_attribute_is_not_found(cache, monkeypatch):
    """By `build_program`, and by a Script's call, which makes its options elsewhere."""
    monkeypatch.setattr(tilus.target, "_target", tilus.target.nvgpu_sm90a)
    with programs_only() as programs:
        contenders.find("tilus/data_parallel").build(PROBLEMS["matmul"], PLAIN["tilus/data_parallel"])
    called, theirs = OptionsOfTilus.create(), OptionsOfTilus()
    assert called == drivers.BuildOptions()
    (ours, before) = (drivers.get_cache_dir(programs[0], options) for options in (called, theirs))
    assert ours != before and (ours / "program.txt").read_text() == (before / "program.txt").read_text()
    assert f"'compiler_changes': '{build_options.compiler_changes()}'" in (ours / "options.txt").read_text()


def test_a_change_of_an_emitter_is_one_of_the_option(tmp_path, monkeypatch):
    """And one of a file that changes nothing in tilus is none."""

    option = build_options.compiler_changes
    for path in Path(build_options.__file__).parent.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    before = option()
    monkeypatch.setattr(build_options, "__file__", str(tmp_path / "build_options.py"))
    assert option() == before
    (tmp_path / "stream_k.py").write_text("")
    assert option() == before
    (tmp_path / "wgmma.py").write_text((tmp_path / "wgmma.py").read_text() + "UNIT = 32\n")
    assert option() != before
