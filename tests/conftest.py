import gc
import os
from contextlib import contextmanager

from triton_vs_tilus.bench.measure import nvml


def share_out(worker: str) -> None:
    """Workers share the CPUs, and so must the threads of each, and of what it starts; and the GPUs, each has one."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = _all_gpus() if visible is None else visible.split(",")
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[int(worker.removeprefix("gw")) % len(gpus)]


def _all_gpus() -> list[str]:
    try:
        return [str(gpu) for gpu in range(nvml.host().gpus)]
    except nvml.NVMLError:
        return []


# Said before torch is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    share_out(os.environ["PYTEST_XDIST_WORKER"])

import pytest  # noqa: E402
import torch  # noqa: E402

# Decided before any kernel is imported: without a GPU, Triton's kernels run in its interpreter.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


# Imports and collection leave a million objects, nearly all of them for good: no use in looking for garbage among them.
gc.disable()


def pytest_collection_finish():
    """What lives as long as the session is left out when the garbage of tests is looked for."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    from matmul_cases import lacks

    from triton_vs_tilus.common.kernel import Kernel

    for item in items:
        kernel = item.callspec.params.get("kernel") if hasattr(item, "callspec") else None
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; none here"))
        elif "interpreted" in item.keywords and torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="Triton's kernels are not interpreted beside a CUDA device"))
        elif isinstance(kernel, Kernel) and (reason := lacks(kernel)):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_generate_tests(metafunc):
    """Each kernel of a file in every language, for the classes that take their tests from matmul_cases."""
    if "kernel" in metafunc.fixturenames and hasattr(metafunc.cls, "name"):
        import matmul_cases

        kernels = matmul_cases.kernels_named(metafunc.cls.name)
        metafunc.parametrize("kernel", kernels, ids=lambda kernel: kernel.full_name)


@pytest.fixture(scope="session", autouse=True)
def no_user_data(tmp_path_factory):
    """What the user of this machine has searched changes no test."""
    os.environ["TRITON_VS_TILUS_DATA"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture
def tuned_tables(tmp_path, monkeypatch):
    """An empty folder of shipped tuned tables, in place of the project's; the user's layer is empty too."""
    from triton_vs_tilus.common import tuned

    shipped = tmp_path / "shipped"
    shipped.mkdir()
    monkeypatch.setattr(tuned, "SHIPPED", shipped)
    monkeypatch.setenv(tuned.DATA_VARIABLE, str(tmp_path / "data"))
    tuned.refresh()
    yield shipped
    tuned.refresh()


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A project of its own, `tmp_path`, and its folder of results, which is not there yet."""
    from triton_vs_tilus.bench.rows import queries

    monkeypatch.setattr(queries, "ROOT", tmp_path)
    monkeypatch.setattr(queries, "RESULTS", tmp_path / "results")
    return queries.RESULTS


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


@pytest.fixture
def plans(monkeypatch) -> list:
    """The plans that launchers make from here on; none is kept from before."""
    from triton_vs_tilus.common import call, plan

    made = []
    real = plan.Call.__init__
    monkeypatch.setattr(plan.Call, "__init__", lambda self, *args: (made.append(args[0]), real(self, *args))[1])
    monkeypatch.setattr(call, "_calls", {})
    return made


@pytest.fixture
def current(monkeypatch) -> list[int]:
    """The number of the current GPU, which devices.on sets, of GPUs that need not be there."""
    from triton_vs_tilus.common import call, devices

    numbers = [0]

    @contextmanager
    def on(device):
        numbers[0], before = device.index, numbers[0]
        yield
        numbers[0] = before

    for module in (call, devices):
        monkeypatch.setattr(module, "on", on)
    return numbers


@pytest.fixture(autouse=True)
def fresh_seals():
    """A test may set the clock's constants, and is no contender for that."""
    from triton_vs_tilus.bench.measure.seals import seal

    seal.cache_clear()
