"""The split-K protocols under many orders of their blocks, and with a mistake put into each."""

import dataclasses
from unittest import mock

import mutants
import pytest
import tilus
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matmul_cases import matmul_kernels, own_config
from mutants import WithoutSync, holds
from tilus import float32, uint32, void_p
from tilus.hidet.ir.expr import Call, equal
from tilus.hidet.ir.primitives.cuda.atomic import atomic_add
from tilus.hidet.ir.primitives.cuda.cluster import cluster_arrive, cluster_wait
from tilus.hidet.ir.primitives.cuda.cvta import cvta_cluster_shared_to_generic, cvta_generic_to_cta_shared
from tilus.hidet.ir.primitives.cuda.mapa import mapa_shared
from tilus.hidet.ir.primitives.cuda.vars import blockIdx
from tilus.ir.functors import IRRewriter
from tilus.ir.instructions import (
    CopyAsyncWaitGroupInst,
    LockSemaphoreInst,
    ReleaseSemaphoreInst,
    SyncReduceThreadsInst,
)
from tilus.ir.layout.ops import shared_row_major
from tilus.ir.stmt import AssignStmt, DeclareStmt, SeqStmt, ThreadGroupStmt

from triton_vs_tilus import kernels_tilus
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import interpreter, launching
from triton_vs_tilus.kernels_tilus.configs import BandConfig
from triton_vs_tilus.kernels_tilus.interpreter import (
    Deadlock,
    Divergent,
    KernelError,
    MissingFence,
    MissingSync,
    NotClean,
    PendingCopy,
    PendingProduct,
    Race,
    Schedule,
    Uninitialized,
    UseAfterFree,
)

KERNELS = {
    kernel.variant if kernel.name == "semaphore" else f"{kernel.name}.{kernel.variant}": kernel
    for kernel in matmul_kernels(kernels_tilus)
    if kernel.name != "sliced_k"  # its blocks do not meet
}
each_kernel = pytest.mark.parametrize("variant", KERNELS)
each_variant = pytest.mark.parametrize("variant", ["in_place", "fp32"])  # of the semaphore

PROBLEM = Matmul(20, 40, 512, layout=Layout.NK, epilogue=Epilogue.BIAS_RELU)
CONFIG = BandConfig(16, 16, 64, split_k=4, num_warps=2, num_stages=3)
TILES = 2 * 3


def run(variant, problem, config, schedule=None, seed=0):
    inputs = problem.inputs("cpu", seed)
    kernel = KERNELS[variant]
    with interpreter.using(schedule):
        return kernel.launch(
            inputs.a,
            inputs.b,
            bias=inputs.bias,
            epilogue=problem.epilogue,
            out_dtype=problem.out_dtype,
            config=own_config(kernel, config),
        )


def run_mutant(mutation, variant="in_place", problem=PROBLEM, config=CONFIG, schedule=None):
    with mutants.launched(mutation, schedule):
        return run(variant, problem, config)


# The kernel as it is


@st.composite
def matmuls(draw):
    layout = draw(st.sampled_from(Layout))
    problem = Matmul(
        m=draw(st.integers(1, 34)),
        n=draw(st.integers(1, 12)) * (2 if layout is Layout.KN else 1),
        k=2 * draw(st.integers(1, 100)),
        dtype=draw(st.sampled_from([torch.bfloat16, torch.float16])),
        out_dtype=draw(st.sampled_from([None, torch.float32])),
        layout=layout,
        epilogue=draw(st.sampled_from(Epilogue)),
    )
    block_m, block_n, num_warps = draw(st.sampled_from([(16, 8, 1), (16, 16, 2), (32, 16, 2)]))
    block_k = draw(st.sampled_from([16, 32, 64]))
    config = BandConfig(block_m, block_n, block_k, draw(st.integers(1, 7)), num_warps, draw(st.integers(2, 4)))
    return problem, config


orders = st.sampled_from(["natural", "reversed", "random"])
schedules = st.builds(Schedule, order=orders, resident=st.none() | st.integers(1, 12), seed=st.integers(0, 999))


@each_kernel
@settings(max_examples=30, deadline=None)
@given(matmul=matmuls(), schedule=schedules)
def test_every_schedule_gives_the_same_right_answer(variant, matmul, schedule):
    problem, config = matmul
    kernel = KERNELS[variant]
    assume(kernel.supports(problem, own_config(kernel, config)) is None)
    judge = Judge(problem, problem.inputs("cpu"))
    natural, other = run(variant, problem, config), run(variant, problem, config, schedule)
    for out in (natural, other):
        assert judge.judge(out, kernel.roundings(config)).ok
    if kernel.deterministic:
        assert torch.equal(other, natural)


@settings(max_examples=20, deadline=None)
@given(left=st.integers(-(2**31), 2**31 - 1), schedule=schedules)
def test_what_a_semaphore_held_is_nobodys_turn(left, schedule):
    def launch(script, *args):
        semaphores = args[script.params.param_names.index("semaphores_ptr")]
        semaphores.fill_(left)
        interpreter.run(script, *args, schedule=schedule)
        assert (semaphores == 0).all()

    natural = run("fp32", PROBLEM, CONFIG)
    with mock.patch.object(launching, "launch", launch):
        assert torch.equal(run("fp32", PROBLEM, CONFIG), natural)


# How many blocks must be resident


@each_variant
@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
def test_one_resident_block_is_enough_where_lower_splits_start_first(variant, order):
    run(variant, PROBLEM, CONFIG, Schedule(order, resident=1))


NEEDED = TILES * (CONFIG.split_k - 1) + 1


@each_variant
@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
def test_residency_needed_where_higher_splits_start_first(variant, order):
    """With one less, every resident block waits for a split that is not there."""
    expected = run(variant, PROBLEM, CONFIG)
    assert torch.equal(run(variant, PROBLEM, CONFIG, Schedule(order, NEEDED, launch="reversed")), expected)
    with pytest.raises(Deadlock, match=rf"all {NEEDED - 1} resident blocks wait") as caught:
        run(variant, PROBLEM, CONFIG, Schedule(order, NEEDED - 1, launch="reversed"))
    lines = str(caught.value).split("\n")
    assert "block (1, 2, 3) waits for semaphores" in lines[1]
    assert "lock_semaphore(semaphore, value=ticket + split)" in lines[1]
    assert lines[-1] == "  blocks not resident, and so never to come: 6, the first (1, 2, 0)"


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999), order=orders)
def test_that_residency_is_enough_for_any_launch_order(seed, order):
    run("in_place", PROBLEM, CONFIG, Schedule(order, NEEDED, launch="random", seed=seed))


# The kernel with a mistake


class WithoutSyncBeforeRelease(WithoutSync):
    def between(self, before, after):
        return holds(after, ReleaseSemaphoreInst)


class WithoutSyncAfterWait(WithoutSync):
    def between(self, before, after):
        return holds(before, CopyAsyncWaitGroupInst)


class WrongRelease(IRRewriter):
    def visit_ReleaseSemaphoreInst(self, inst):
        return ReleaseSemaphoreInst.create(inst.semaphore, inst.value + 1)


class WrongLock(IRRewriter):
    def visit_LockSemaphoreInst(self, inst):
        return LockSemaphoreInst.create(inst.semaphore, inst.value + 1)


class WithoutLock(IRRewriter):
    def visit_LockSemaphoreInst(self, inst):
        return None


class WithoutReset(IRRewriter):
    def visit_StoreGlobalInst(self, inst):
        return None if inst.inputs[1].dtype.is_integer() else inst


class WithoutWaits(IRRewriter):
    def visit_CopyAsyncWaitGroupInst(self, inst):
        return None


class WithoutEndOfBand(IRRewriter):
    """Copies whatever the condition."""

    def visit_IfStmt(self, stmt):
        stmt = super().visit_IfStmt(stmt)
        return stmt.then_body if "CopyAsync" in str(stmt.then_body) else stmt


class WithoutBarrier(IRRewriter):
    """Without the calls of these places, of arrivals at barriers of the cluster and waits there."""

    def __init__(self, which):
        super().__init__()
        self.which, self.seen = which, 0

    def visit_EvaluateStmt(self, stmt):
        self.seen += 1
        return SeqStmt(()) if self.seen in self.which else stmt


class ReversedSplits(IRRewriter):
    """split = split_k - 1 - blockIdx.z: blocks that start first wait for those that start last."""

    def visit_DeclareStmt(self, stmt):
        if stmt.init is blockIdx.z:
            return DeclareStmt(stmt.var, CONFIG.split_k - 1 - blockIdx.z)
        return super().visit_DeclareStmt(stmt)


@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
@pytest.mark.parametrize(
    "mutation, variant, error, words",
    [
        (WithoutSyncBeforeRelease, "in_place", Race, r"reads c_ptr\[\d+, \d+\], which block \(\d, \d, 0\) wrote"),
        (WithoutSyncBeforeRelease, "fp32", Race, r"reads running_ptr\[\d+, \d+\], which block"),
        (WithoutLock, "in_place", Race, r"c_ptr\[\d+, \d+\], which block"),
        (WithoutLock, "fp32", Race, "running_ptr"),
        (
            WrongRelease,
            "in_place",
            Deadlock,
            r"semaphores\[0\] == \d+, which is \d+ since block .* at `ReleaseSem",
        ),
        (WrongRelease, "fp32", Deadlock, r"semaphores_ptr\[0\] == \d+, which is \d+"),
        (WrongLock, "in_place", Deadlock, "LockSemaphore"),
        (WithoutReset, "in_place", NotClean, "semaphores requires_clean, and the launch leaves"),
        (WithoutWaits, "in_place", PendingCopy, r"sa\[0, 0, 0\] is read while a copy into it"),
        (WithoutSyncAfterWait, "in_place", MissingSync, r"sa\[0, 0, 0\] is read, and no sync"),
    ],
)
def test_mutants_are_caught(mutation, variant, error, words, order):
    with pytest.raises(error, match=words):
        run_mutant(mutation(), variant, schedule=Schedule(order))


class PullingCluster(tilus.Script):
    """out[rank, :] = the sum of what the blocks of a cluster hold, which each reads from its peers."""

    def __init__(self):
        super().__init__()
        self.ranks, self.layout = 4, shared_row_major(4, 16)

    def __call__(self, out_ptr: void_p):
        self.attrs.blocks = [1, 1, self.ranks]
        self.attrs.cluster_blocks = [1, 1, self.ranks]
        self.attrs.warps = 1
        out = self.global_view(out_ptr, dtype=float32, shape=[4 * self.ranks, 16])
        partial = self.shared_tensor(dtype=float32, shape=[4, 16])
        self.annotate_layout(partial, self.layout)
        self.store_shared(partial, self.register_tensor(dtype=float32, shape=[4, 16], init=1.0))
        self.cluster.sync()
        total = self.register_tensor(dtype=float32, shape=[4, 16], init=0.0)
        own: uint32 = cvta_generic_to_cta_shared(partial[0, 0].item_ptr())
        for rank in self.range(self.ranks, unroll="all"):
            peer: void_p = cvta_cluster_shared_to_generic(mapa_shared(own, rank))
            theirs = self.global_view(peer, dtype=float32, shape=[4, 16])
            self.add(total, self.load_global(theirs, offsets=[0, 0], shape=[4, 16]), out=total)
        cluster_arrive()
        self.store_global(out, total, offsets=[self.blockIdx.z * 4, 0])
        cluster_wait()
        self.free_shared(partial)


@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
@pytest.mark.parametrize(
    "which, error, words",
    [
        ({1}, (Race, MissingSync, UseAfterFree, Uninitialized), "partial|which may not have started"),
        ({2, 3}, (Race, UseAfterFree), "partial"),
        ({3}, (Race, UseAfterFree), "partial"),
        ({2}, KernelError, "where it has not arrived"),
    ],
)
def test_a_cluster_that_pulls_needs_both_barriers(which, error, words, order):
    out = torch.zeros(16, 16)
    program = interpreter.transpile(PullingCluster(), out)
    interpreter.run_program(program, out, schedule=Schedule(order))
    assert (out == 4).all()
    with pytest.raises(error, match=words):
        interpreter.run_program(WithoutBarrier(which)(program), out, schedule=Schedule(order))


def test_a_race_names_both_places():
    with pytest.raises(Race) as caught:
        run_mutant(WithoutSyncBeforeRelease(), schedule=Schedule())
    first, second = str(caught.value).split("\n")
    assert "self.store_global(" in first
    assert "in block (0, 0, 1), semaphore.py:" in second
    assert "self.load_global(running" in second


def test_copies_that_no_step_waits_for_are_caught_where_the_band_is_short():
    """A pipeline that fills its stages without asking where the band ends copies steps that it does not have, into
    memory that holds the terms of the sum by then."""
    short = Matmul(4, 16, 64)
    config = BandConfig(16, 16, 64, split_k=2, num_warps=2, num_stages=4)
    run("last_arriver.", short, config)
    with pytest.raises(PendingCopy, match=r"terms takes memory that sa had, .* while a copy into it may be under way"):
        run_mutant(WithoutEndOfBand(), "last_arriver.", short, config)


def test_reversed_splits_deadlock_or_not_by_residency():
    expected = run("in_place", PROBLEM, CONFIG)
    for resident in (NEEDED, None):
        assert torch.equal(run_mutant(ReversedSplits(), schedule=Schedule(resident=resident)), expected)
    with pytest.raises(Deadlock, match="never to come: 6, the first"):
        run_mutant(ReversedSplits(), schedule=Schedule(resident=NEEDED - 1))


# Blocks that count themselves in, with a mistake


def begins_with(stmt, kind) -> bool:
    while isinstance(stmt, SeqStmt) and stmt.seq:
        stmt = stmt.seq[0]
    return isinstance(stmt, kind)


class WithoutSyncBeforeCount(WithoutSync):
    def between(self, before, after):
        return begins_with(after, ThreadGroupStmt)


class CountedIn(IRRewriter):
    """The count with another memory order."""

    def __init__(self, order):
        super().__init__()
        self.order = order

    def visit_AssignStmt(self, stmt):
        if isinstance(stmt.value, Call) and stmt.value.func_var.name == "cuda_atomic_add_acq_rel_global":
            return AssignStmt(stmt.var, atomic_add(*stmt.value.args, sem=self.order))
        return super().visit_AssignStmt(stmt)


class LastButOne(IRRewriter):
    """Takes itself for the last where one is still to come."""

    def visit_SyncReduceThreadsInst(self, inst):
        before, last = inst.reduce_value.a, inst.reduce_value.b
        return SyncReduceThreadsInst(None, (), inst.reduce_op, inst.var, equal(before, last - 1))


class WithoutVote(IRRewriter):
    """Every thread goes by what it has seen itself."""

    def visit_SyncReduceThreadsInst(self, inst):
        return DeclareStmt(inst.var, inst.reduce_value)


ARRIVALS = {
    "atomic.": r"sums_ptr\[\d+(, \d+)?\], which (it|block .*) adds to at",
    "last_arriver.": r"reads partials_ptr\[\d+, \d+, \d+\], which (it|block .*) wrote at",
    "stream_k.": r"reads partials_ptr\[\d+, \d+, \d+\], which (it|block .*) wrote at",
}


@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
@pytest.mark.parametrize(
    "mutation",
    [WithoutSyncBeforeCount(), *map(CountedIn, ["relaxed", "acquire", "release"])],
    ids=["no sync", "relaxed", "acquire", "release"],
)
@pytest.mark.parametrize("variant", ARRIVALS)
def test_what_is_counted_out_of_order_is_a_race(variant, mutation, order):
    with pytest.raises(Race, match=ARRIVALS[variant]):
        run_mutant(mutation, variant, schedule=Schedule(order))


@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
@pytest.mark.parametrize("variant", ARRIVALS)
def test_a_sum_before_all_have_come_is_a_race(variant, order):
    with pytest.raises(Race, match=r"(partials|sums|counters)_ptr"):
        run_mutant(LastButOne(), variant, schedule=Schedule(order))


@pytest.mark.parametrize("variant", ARRIVALS)
def test_who_is_last_must_be_told_to_all_threads(variant):
    with pytest.raises(Divergent, match="assigned by a part of the threads and is read by others too"):
        run_mutant(WithoutVote(), variant)


class WithoutProxyFence(IRRewriter):
    def visit_FenceProxyAsync(self, inst):
        return None


def test_tma_over_terms_of_the_tile_before_needs_a_fence():
    """The second of two programs comes last to the tile that they share, and goes on to the next."""
    problem, config = Matmul(64, 192, 512, layout=Layout.NK), BandConfig(64, 64, 64, 1, 4, 3, engine="wgmma")
    expected = run("stream_k.", problem, config)
    assert Judge(problem, problem.inputs("cpu")).judge(expected, 1).ok
    with pytest.raises(MissingFence, match="TMA writes sb, where threads may have written: no proxy fence between"):
        run_mutant(WithoutProxyFence(), "stream_k.", problem, config, Schedule())


# Blocks that load for each other, with a mistake

PAIRS = Matmul(100, 72, 648, layout=Layout.NK), BandConfig(64, 64, 128, 2, 4, 2, engine="wgmma_pairs")


@settings(max_examples=10, deadline=None)
@given(schedule=schedules)
def test_pairs_give_the_same_right_answer_in_every_order(schedule):
    natural, other = (run("decompose_k.vector", *PAIRS, order) for order in (None, schedule))
    assert Judge(PAIRS[0], PAIRS[0].inputs("cpu")).judge(other, 1).ok
    assert torch.equal(other, natural)


class WithoutArrivals(IRRewriter):
    """Nobody says that a stage is read."""

    def visit_ArriveExpectTxMulticastBarrierInst(self, inst):
        return None


class WithoutReadWaits(IRRewriter):
    """Nobody waits for a stage to be read: of the waits for barriers the one within the condition of a fill."""

    def visit_WaitBarrierInst(self, inst):
        return None if inst.scope == "cluster" else inst


class ForItselfAlone(IRRewriter):
    """Loads half of a tile, and sends it to nobody."""

    def visit_CopyAsyncTensorGlobalToSharedInst(self, inst):
        return dataclasses.replace(inst, multicast_mask=None)


@pytest.mark.parametrize(
    "mutation, error, words",
    [
        (WithoutArrivals(), Deadlock, r"phase 0 of read\[0\], which misses 2 arrivals"),
        (WithoutReadWaits(), (MissingSync, PendingProduct, Race), r"sb.* is written over (a read|while a wgmma)"),
        (ForItselfAlone(), Deadlock, r"phase 0 of full\[0\], which misses 0 arrivals and 8192 bytes"),
        (WithoutBarrier({1, 2}), Race, "the shared memory of block .* is used, which may not have started"),
    ],
    ids=["no arrivals", "no waits", "not sent", "no barrier first"],
)
@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
def test_what_pairs_need(mutation, error, words, order):
    problem, config = PAIRS
    with pytest.raises(error, match=words):
        run_mutant(mutation, "data_parallel.", problem, dataclasses.replace(config, split_k=1), Schedule(order))


@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
def test_every_arrival_of_a_pair_is_waited_for(order):
    """So none comes to a block that has ended, though nothing at the end keeps blocks from that here."""
    problem, config = PAIRS
    no_last_barrier = WithoutBarrier({3, 4})
    out = run_mutant(
        no_last_barrier, "data_parallel.", problem, dataclasses.replace(config, split_k=1), Schedule(order)
    )
    assert Judge(problem, problem.inputs("cpu")).judge(out, 1).ok and no_last_barrier.seen >= 4


# A producer warp that goes on to the next tile, with a mistake

WALK = Matmul(100, 136, 328, layout=Layout.NK), BandConfig(64, 64, 64, 1, 4, 2, engine="wgmma_specialized")


@settings(max_examples=10, deadline=None)
@given(schedule=schedules)
def test_tiles_walked_give_the_same_right_answer_in_every_order(schedule):
    natural, other = (run("data_parallel.persistent", *WALK, order) for order in (None, schedule))
    assert Judge(WALK[0], WALK[0].inputs("cpu")).judge(other, 1).ok
    assert torch.equal(other, natural)


class WithoutLastRead(IRRewriter):
    """The last stage of a tile is never said to be read: of both arrivals the one after the loop of steps."""

    seen = 0

    def visit_ArriveOnceAWarpInst(self, inst):
        self.seen += 1
        return None if self.seen == 2 else inst


class WithoutWaitsForRead(IRRewriter):
    """The producer warp waits for nobody: of the waits for barriers its own comes first."""

    seen = 0

    def visit_WaitBarrierInst(self, inst):
        self.seen += 1
        return None if self.seen == 1 else inst


@pytest.mark.parametrize(
    "mutation, error, words",
    [
        (WithoutLastRead, Deadlock, r"of read\[\d\], which misses 4 arrivals"),
        (
            WithoutWaitsForRead,
            KernelError,
            r"full\[0\], where phase 0 misses 0: nothing has waited for the phase before",
        ),
    ],
)
@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
def test_what_a_walk_needs(mutation, error, words, order):
    with pytest.raises(error, match=words):
        run_mutant(mutation(), "data_parallel.persistent", *WALK, Schedule(order))


@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
@pytest.mark.parametrize("launch", ["natural", "reversed", "random"])
@pytest.mark.parametrize("variant", ARRIVALS)
def test_one_resident_block_is_enough_in_any_order(variant, launch, order):
    """No block waits for another."""
    out = run(variant, PROBLEM, CONFIG, Schedule(order, resident=1, launch=launch))
    assert Judge(PROBLEM, PROBLEM.inputs("cpu")).judge(out, 1).ok
