"""Groups of threads in the interpreter of tilus: side by side, and ordered by barriers, partial syncs and TMA."""

import cuda_source
import pytest
import tilus
import torch
from tilus import boolean, float6_e3m2, float16, float32, int32, uint4b, void_p

from triton_vs_tilus.kernels_tilus import interpreter
from triton_vs_tilus.kernels_tilus.interpreter import Schedule, drawn

ORDERS = [Schedule("natural"), Schedule("reversed"), drawn(2), drawn(3)]
each_order = pytest.mark.parametrize("order", ORDERS, ids=["natural", "reversed", "random", "another"])


def numbered(*shape: int) -> torch.Tensor:
    """0, 1, 2, ... in half precision."""
    return torch.arange(torch.Size(shape).numel()).view(shape).half()


class Relay(tilus.Script):
    """out = 2 x, [tiles, 64]: warp 4 loads tiles, by TMA, into two stages; warps 0 to 3 read them."""

    def __init__(self, mistake="nothing"):
        super().__init__()
        self.mistake = mistake
        self.arrival = "relaxed" if mistake == "relaxed arrival" else "release"
        self.waiting = "relaxed" if mistake == "relaxed wait" else "acquire"
        self.consumers = 96 if mistake == "too few arrive" else 128

    def __call__(self, x_ptr: ~float16, out_ptr: ~float16, tiles: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 5
        x = self.global_view(x_ptr, dtype=float16, shape=[tiles, 64])
        out = self.global_view(out_ptr, dtype=float16, shape=[tiles, 64])
        stages = self.shared_tensor(dtype=float16, shape=[2, 1, 64])
        full = self.mbarrier.alloc(counts=[1, 1])
        empty = self.mbarrier.alloc(counts=[128, 128])
        with self.thread_group(128, 32):
            for i in self.range(tiles):
                slot: int32 = i % 2
                if self.mistake != "no wait for the readers":
                    self.mbarrier.wait(empty[slot], phase=(i // 2 + 1) % 2)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[slot], transaction_bytes=128)
                self.tma.global_to_shared(src=x, dst=stages[slot], offsets=[i, 0], mbarrier=full[slot])
        with self.thread_group(0, self.consumers):
            for i in self.range(tiles):
                slot: int32 = i % 2
                if self.mistake != "no wait for the data":
                    self.mbarrier.wait(full[slot], phase=i // 2 % 2, sem=self.waiting)
                tile = self.load_shared(stages[slot])
                if self.mistake != "arrives first":
                    self.mbarrier.arrive(empty[slot], sem=self.arrival)
                self.store_global(out, tile * 2.0, offsets=[i, 0])
                if self.mistake == "read after the arrival":
                    tile = self.load_shared(stages[slot])


def relay(mistake="nothing", order=None):
    x = numbered(5, 64)
    out = torch.full_like(x, float("nan"))
    interpreter.run(Relay(mistake), x, out, 5, schedule=order)
    return x, out


@each_order
def test_warps_that_load_for_others_run_beside_them(order):
    x, out = relay(order=order)
    assert torch.equal(out, 2 * x)


@each_order
@pytest.mark.parametrize(
    "mistake, error, words",
    [
        ("no wait for the data", interpreter.KernelError, r"stages\[0, 0, 0\] is read"),
        (
            "no wait for the readers",
            interpreter.KernelError,
            r"stages\[0, 0, 0\] is written|1 arrive at full\[0\]",
        ),
        ("relaxed wait", interpreter.MissingSync, r"stages\[0, 0, 0\] is read, and no sync lies between"),
        ("relaxed arrival", interpreter.MissingSync, r"stages\[0, 0, 0\] is written over"),
        ("read after the arrival", interpreter.KernelError, r"stages\[., 0, 0\] is (written over a read|read)"),
        ("too few arrive", interpreter.Deadlock, r"threads 128 to 159, waits for the end of phase 0 of empty\[0\]"),
    ],
)
def test_mistakes_between_groups_are_named_in_every_order(mistake, error, words, order):
    with pytest.raises(error, match=words):
        relay(mistake, order)


class Swap(tilus.Script):
    """Each half of the block stores a row in shared memory, and reads it; then the second reads the first's."""

    def __init__(self, mistake="nothing"):
        super().__init__()
        self.mistake = mistake

    def __call__(self, x_ptr: ~float32, out_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        x = self.global_view(x_ptr, dtype=float32, shape=[2, 64])
        out = self.global_view(out_ptr, dtype=float32, shape=[3, 64])
        halves = self.shared_tensor(dtype=float32, shape=[2, 64])
        with self.thread_group(0, 64):
            self.store_shared(halves[0], self.load_global(x, offsets=[0, 0], shape=[64], dims=[1]))
            if self.mistake != "no sync of the half":
                self.sync()
            self.store_global(out, self.load_shared(halves[0]), offsets=[0, 0], dims=[1])
        with self.thread_group(64, 64):
            self.store_shared(halves[1], self.load_global(x, offsets=[1, 0], shape=[64], dims=[1]))
            self.sync()
            self.store_global(out, self.load_shared(halves[1]), offsets=[1, 0], dims=[1])
        if self.mistake != "no sync of both":
            self.sync()
        with self.thread_group(64, 64):
            self.store_global(out, self.load_shared(halves[0]), offsets=[2, 0], dims=[1])


def test_a_group_syncs_for_itself():
    x, out = torch.randn(2, 64), torch.empty(3, 64)
    interpreter.run(Swap(), x, out)
    assert torch.equal(out, x[[0, 1, 0]])


@pytest.mark.parametrize("mistake", ["no sync of the half", "no sync of both"])
def test_what_a_group_has_not_synced_is_named(mistake):
    with pytest.raises(interpreter.MissingSync, match=r"halves\[0, 0\] is read, and no sync"):
        interpreter.run(Swap(mistake), torch.randn(2, 64), torch.empty(3, 64))


class Elected(tilus.Script):
    """One thread adds to what all have stored; `spread` has a register tensor assigned by one warp and read by all."""

    def __init__(self, spread):
        super().__init__()
        self.spread = spread

    def __call__(self, out_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        out = self.global_view(out_ptr, dtype=float32, shape=[64])
        shared = self.shared_tensor(dtype=float32, shape=[64])
        tile = self.register_tensor(dtype=float32, shape=[64], init=1.0)
        barrier = self.mbarrier.alloc(counts=[64])
        self.store_shared(shared, tile)
        self.mbarrier.arrive(barrier)
        self.mbarrier.wait(barrier, phase=0)
        with self.single_warp():
            with self.single_thread():
                self.store_shared(shared, self.load_shared(shared) + 1.0)
            if self.spread:
                tile += 1.0
        self.sync()
        self.store_global(out, self.load_shared(shared) + tile, offsets=[0])


def test_a_thread_needs_no_sync_with_itself_and_a_barrier_is_one():
    out = torch.empty(64)
    interpreter.run(Elected(spread=False), out)
    assert (out == 3).all()


def test_a_register_tensor_that_some_threads_assigned_is_not_read_by_all():
    with pytest.raises(interpreter.Divergent, match="a register tensor was assigned by a part of the threads"):
        interpreter.run(Elected(spread=True), torch.empty(64))


class Overlap(tilus.Script):
    """A tensor that is freed before the end, whose memory tilus 0.2.0 gives to the barrier as well; or other memory."""

    def __init__(self, reserved):
        super().__init__()
        self.reserved = reserved

    def __call__(self, x_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.global_view(x_ptr, dtype=float32, shape=[64])
        done = self.mbarrier.alloc(counts=[32])
        if self.reserved:
            place = self.shared_tensor(dtype=float32, shape=[32])
        tile = self.shared_tensor(dtype=float32, shape=[64])
        self.store_shared(tile, self.load_global(x, offsets=[0], shape=[64]))
        self.mbarrier.arrive(done)
        self.mbarrier.wait(done, phase=0)
        self.free_shared(tile)
        if self.reserved:
            self.free_shared(place)


def test_a_barrier_over_a_tensor_is_found():
    """As tilus 0.2.0 has it; what is free by the end, and was never written, is a place for barriers."""
    with pytest.raises(interpreter.BarrierOverlap, match=r"done\[0\] .* have the memory of tile, freed at"):
        interpreter.run(Overlap(reserved=False), torch.zeros(64))
    interpreter.run(Overlap(reserved=True), torch.zeros(64))


class Stored(tilus.Script):
    """out [32, 64] = x + 1, stored by TMA; then out[0] again, read by all."""

    def __init__(self, mistake="nothing"):
        super().__init__()
        self.mistake = mistake

    def __call__(self, x_ptr: ~float16, out_ptr: ~float16, row_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        x = self.global_view(x_ptr, dtype=float16, shape=[32, 64])
        out = self.global_view(out_ptr, dtype=float16, shape=[32, 64])
        row = self.global_view(row_ptr, dtype=float16, shape=[1, 64])
        tile = self.shared_tensor(dtype=float16, shape=[32, 64])
        self.store_shared(tile, self.load_global(x, offsets=[0, 0], shape=[32, 64]) + 1.0)
        if self.mistake != "no fence":
            self.fence.proxy_async()
        self.sync()
        with self.single_warp():
            self.tma.shared_to_global(src=tile, dst=out, offsets=[0, 0])
            if self.mistake != "no commit":
                self.tma.commit_group()
            self.tma.wait_group(0, read=self.mistake == "waits for reads alone")
        self.sync()
        if self.mistake == "no commit":
            self.store_shared(tile, self.load_global(x, offsets=[0, 0], shape=[32, 64]))
        self.store_global(row, self.load_global(out, offsets=[0, 0], shape=[1, 64]), offsets=[0, 0])


def test_a_tma_store_is_there_after_its_wait():
    x = torch.randn(32, 64).half()
    out, row = torch.empty_like(x), torch.empty(1, 64).half()
    interpreter.run(Stored(), x, out, row)
    assert torch.equal(out, x + 1)
    assert torch.equal(row, out[:1])


@pytest.mark.parametrize(
    "mistake, error, words",
    [
        ("no fence", interpreter.MissingFence, "a TMA store reads tile, which threads have written"),
        ("no commit", interpreter.PendingProduct, r"tile\[0, 0\] is written over while a TMA store that reads it"),
        ("waits for reads alone", interpreter.Race, r"reads out_ptr\[0, 0\], which it wrote at .*shared_to_global"),
    ],
)
def test_mistakes_of_a_tma_store_are_named(mistake, error, words):
    x = torch.zeros(32, 64).half()
    with pytest.raises(error, match=words):
        interpreter.run(Stored(mistake), x, torch.empty_like(x), torch.empty(1, 64).half())


class Row(tilus.Script):
    """x[2] = x[1], by TMA: of the tensor's rank, or as a row without it."""

    def __init__(self, store, dims):
        super().__init__()
        self.store, self.dims = store, dims

    def __call__(self, x_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.global_view(x_ptr, dtype=float16, shape=[5, 64])
        full = self.mbarrier.alloc(counts=[1])
        row = self.shared_tensor(dtype=float16, shape=[64] if len(self.dims) == 1 else [1, 64])
        if self.store:
            self.store_shared(row, self.load_global(x, offsets=[1, 0], shape=row.shape, dims=self.dims))
            self.fence.proxy_async()
            self.sync()
            self.tma.shared_to_global(src=row, dst=x, offsets=[2, 0], dims=self.dims)
            self.tma.commit_group()
            self.tma.wait_group(0)
        else:
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full[0], transaction_bytes=128)
            self.tma.global_to_shared(src=x, dst=row, offsets=[1, 0], dims=self.dims, mbarrier=full[0])
            self.mbarrier.wait(full[0], phase=0)
            self.store_global(x, self.load_shared(row), offsets=[2, 0], dims=self.dims)


@pytest.mark.parametrize("store", [False, True], ids=["load", "store"])
def test_a_tma_tile_has_the_rank_of_its_tensor(store):
    """tilus 0.2.0 encodes a map of the tile's rank, and addresses it by the tensor's."""
    x = torch.arange(5 * 64).half().view(5, 64)
    interpreter.run(Row(store, dims=(0, 1)), x)
    assert torch.equal(x[2], x[1])
    words = rf"a TMA {'store to' if store else 'load from'} x_ptr with dims=\[1\].* map of rank 1.*tensor\.2d.*rank, 2"
    with pytest.raises(interpreter.KernelError, match=words):
        interpreter.run(Row(store, dims=(1,)), x)


def test_tilus_addresses_a_tensor_map_of_rank_1_in_two_dimensions(tmp_path):
    """What the interpreter refuses, in tilus' source: when this fails, tilus is mended, and the refusal should go."""
    source = cuda_source.source_of(Row(False, dims=(1,)), torch.empty(5, 64).half(), folder=tmp_path)
    encoded = source.partition("cuTensorMapEncodeTiled(")[2].partition(");")[0]
    assert "uint32_t(1u)" in encoded and "(x_ptr + 64)" in encoded
    assert "cp.async.bulk.tensor.2d.shared" in source and "cp.async.bulk.tensor.1d" not in source


class Ranks(tilus.Script):
    def __call__(self, out_ptr: ~int32):
        self.attrs.blocks = [4, 2]
        self.attrs.cluster_blocks = [2, 2]
        self.attrs.warps = 1
        out = self.global_view(out_ptr, dtype=int32, shape=[2, 4, 3])
        x: int32 = self.cluster.blockIdx.x
        y: int32 = self.cluster.blockIdx.y
        rank: int32 = self.cluster.blockRank
        tile = self.register_tensor(dtype=int32, shape=[1], init=lambda i: x + 10 * y + 100 * rank)
        self.store_global(out, tile, offsets=[self.blockIdx.y, self.blockIdx.x, 0], dims=[2])


@each_order
def test_a_blocks_place_in_its_cluster(order):
    out = torch.zeros(2, 4, 3, dtype=torch.int32)
    interpreter.run(Ranks(), out, schedule=order)
    assert out[..., 0].tolist() == [[0, 101, 0, 101], [210, 311, 210, 311]]


class Stealing(tilus.Script):
    """Each cluster marks its place, and that of every cluster that it cancels before it starts."""

    def __call__(self, marks_ptr: ~int32, clusters: int32):
        self.attrs.blocks = [2 * clusters]
        self.attrs.cluster_blocks = [2]
        self.attrs.warps = 1
        marks = self.global_view(marks_ptr, dtype=int32, shape=[2 * clusters])
        response = self.shared_tensor(dtype=int32, shape=[4])
        answered = self.mbarrier.alloc(counts=1)
        read = self.mbarrier.alloc(counts=64)
        self.cluster.sync()
        first: boolean = self.cluster.blockRank == 0
        phase: int32 = 0
        place: int32 = self.blockIdx.x
        while True:
            if first:
                with self.thread_group(0, 32):
                    self.mbarrier.arrive_and_expect_tx_multicast(answered, transaction_bytes=16, multicast_mask=0b11)
                    self.clc.try_cancel(response, mbarrier=answered, multicast=True)
            self.store_global(marks, self.register_tensor(dtype=int32, shape=[1], init=1), offsets=[place])
            self.mbarrier.wait(answered, phase=phase, scope="cluster")
            found, index = self.clc.query_response(response)
            self.fence.proxy_async()
            self.mbarrier.arrive_and_expect_tx_remote(read, transaction_bytes=0, target_rank=0)
            if first:
                self.mbarrier.wait(read, phase=phase, scope="cluster")
            phase = phase ^ 1
            if not found:
                break
            place = index.x + self.cluster.blockIdx.x
        self.cluster.sync()


@pytest.mark.parametrize("resident", [None, 2, 4])
def test_clusters_that_have_not_started_are_taken_over(resident):
    marks = torch.zeros(10, dtype=torch.int32)
    interpreter.run(Stealing(), marks, 5, schedule=Schedule(resident=resident))
    assert marks.tolist() == [1] * 10


class Repack(tilus.Script):
    """Elements of less than a byte: the values of src as fp32, and src again as dst."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def __call__(self, src_ptr: void_p, values_ptr: ~float32, dst_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.warps = 1
        src = self.global_view(src_ptr, dtype=self.dtype, shape=[64])
        dst = self.global_view(dst_ptr, dtype=self.dtype, shape=[64])
        values = self.global_view(values_ptr, dtype=float32, shape=[64])
        begin: int32 = self.blockIdx.x * 32
        tile = self.cast(self.load_global(src, offsets=[begin], shape=[32]), dtype=float32)
        self.store_global(values, tile, offsets=[begin])
        self.store_global(dst, self.cast(tile, dtype=self.dtype), offsets=[begin])


@pytest.mark.parametrize("dtype", [uint4b, float6_e3m2], ids=lambda dtype: dtype.name)
def test_packed_elements_of_less_than_a_byte(dtype):
    """As numbers of so many bits, one after the other from the lowest bit of the first byte on."""
    codes = torch.arange(64) * 37 % (1 << dtype.nbits)
    packed = sum(int(code) << (i * dtype.nbits) for i, code in enumerate(codes))
    src = torch.frombuffer(bytearray(packed.to_bytes(8 * dtype.nbits, "little")), dtype=torch.uint8)
    values, dst = torch.empty(64), torch.zeros_like(src)
    interpreter.run(Repack(dtype), src, values, dst)
    if dtype is uint4b:
        assert torch.equal(values.long(), codes)
    else:  # a sign, 3 bits of exponent that count from 3, 2 of fraction
        sign, exponent, fraction = codes >> 5, codes >> 2 & 7, codes & 3
        normal = (4 + fraction) * 2.0 ** (exponent - 5).float()
        assert torch.equal(values, torch.where(exponent > 0, normal, fraction / 16) * (1 - 2 * sign))
    assert torch.equal(dst, src)


# What a Script is called with, of fresh tensors. No cluster of Hopper's cancels another: that is Blackwell's.
AGREED = {
    "groups, TMA loads and mbarriers": lambda: (Relay(), numbered(5, 64), torch.zeros(5, 64).half(), 5),
    "syncs of a group": lambda: (Swap(), torch.randn(2, 64), torch.zeros(3, 64)),
    "one warp, one thread": lambda: (Elected(spread=False), torch.zeros(64)),
    "TMA store": lambda: (Stored(), numbered(32, 64), torch.zeros(32, 64).half(), torch.zeros(1, 64).half()),
    "a row by TMA": lambda: (Row(False, dims=(0, 1)), numbered(5, 64)),
    "a row to TMA": lambda: (Row(True, dims=(0, 1)), numbered(5, 64)),
    "places in a cluster": lambda: (Ranks(), torch.zeros(2, 4, 3, dtype=torch.int32)),
    "4 bits": lambda: (Repack(uint4b), torch.arange(32).byte() * 7, torch.zeros(64), torch.zeros(32).byte()),
    "6 bits": lambda: (Repack(float6_e3m2), torch.arange(48).byte() * 5, torch.zeros(64), torch.zeros(48).byte()),
}


@pytest.mark.gpu
@pytest.mark.parametrize("what", AGREED)
def test_the_gpu_agrees(what):
    script, *on_cpu = AGREED[what]()
    on_gpu = [each.cuda() if isinstance(each, torch.Tensor) else each for each in on_cpu]
    interpreter.run(script, *on_cpu)
    script(*on_gpu)
    for one, other in zip(on_cpu, on_gpu, strict=True):
        assert one == other if isinstance(one, int) else torch.equal(one, other.cpu())
