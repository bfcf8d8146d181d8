"""examples: the router decides as before on logits of `linear`; every example prints its usage."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from fake_device import FakeDevice
from torch import nn

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.bench.measure.clock import Arguments, Timed

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import launch_queue
import router

EXAMPLES = Path(router.__file__).parent


class PlainTopKRouter(nn.Module):
    """As transformers 5 has Mixtral's and gpt-oss'."""

    def __init__(self):
        super().__init__()
        self.hidden_dim, self.top_k = 64, 2
        self.weight = nn.Parameter(torch.randn(16, 64).bfloat16() / 8)
        self.bias = nn.Parameter(torch.randn(16).bfloat16())

    def forward(self, hidden_states):
        hidden_states = hidden_states.reshape(-1, self.hidden_dim)
        router_logits = F.linear(hidden_states, self.weight, self.bias)
        scores, experts = torch.topk(F.softmax(router_logits, dtype=torch.float, dim=-1), self.top_k, dim=-1)
        return router_logits, scores, experts


class WideTopkRouter(PlainTopKRouter):
    """As DeepSeek-V3's, which computes in fp32."""

    def __init__(self):
        super().__init__()
        self.bias = None
        self.register_buffer("correction", torch.randn(16))

    def forward(self, hidden_states):
        hidden_states = hidden_states.view(-1, self.hidden_dim)
        router_logits = F.linear(hidden_states.type(torch.float32), self.weight.type(torch.float32))
        experts = torch.topk(router_logits.sigmoid() + self.correction, k=self.top_k, dim=-1)[1]
        return router_logits, router_logits.sigmoid().gather(1, experts), experts


@pytest.mark.parametrize("kind", [PlainTopKRouter, WideTopkRouter])
@pytest.mark.parametrize("package", [kernels_triton, kernels_tilus], ids=["triton", "tilus"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_swapped_router_gives_what_it_gave_and_keeps_its_parameters(kind, package, compiled):
    model = nn.Sequential(kind()).requires_grad_(False)
    hidden = torch.randn(2, 3, 64).bfloat16()
    before, parameters = model(hidden), set(model.state_dict())
    called = []

    def linear(x, weight, bias=None, *, out_dtype=None):
        called.append(out_dtype)
        return package.linear(x, weight, bias, out_dtype=out_dtype)

    assert router.swap_routers(model, linear) == ["0"]
    torch._dynamo.reset()
    after = torch.compile(model, backend="eager", fullgraph=True)(hidden) if compiled else model(hidden)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(after, before, strict=True))
    assert set(model.state_dict()) == parameters and isinstance(model[0], kind)
    assert called == [torch.float32 if kind is WideTopkRouter else torch.bfloat16]


@pytest.mark.parametrize("kind", [PlainTopKRouter, WideTopkRouter])
def test_what_is_prepared_is_what_a_swapped_router_calls(kind):
    model, called = nn.Sequential(kind()).requires_grad_(False), []

    def linear(x, weight, bias=None, *, out_dtype=None):
        called.append((weight, bias, out_dtype))
        return F.linear(x, weight, bias).to(out_dtype)

    def prepare(weight, *, max_tokens, bias, out_dtype):
        called.append((weight, bias, out_dtype))

    router.swap_routers(model, linear)
    model(torch.randn(3, 64).bfloat16())
    router.prepare_routers(model, prepare, 3)
    (weight, bias, out_dtype), prepared = called
    assert weight is prepared[0] and bias is prepared[1] and out_dtype is prepared[2]


def test_a_model_without_routers_is_an_error():
    with pytest.raises(ValueError, match="Linear has no router"):
        router.swap_routers(nn.Linear(4, 4), F.linear)


def test_decisions_that_differ_at_a_tie_are_told_from_others():
    logits = torch.tensor([[4.0, 3.0, 3.001, 0.0], [4.0, 3.0, 1.0, 0.0], [4.0, 3.0, 1.0, 0.0]])
    theirs = torch.tensor([[0, 2], [0, 1], [1, 0]])
    mine = torch.tensor([[0, 1], [0, 2], [0, 1]])
    assert router.differing((logits, mine), (logits, theirs), 2.0**-7) == (1, 1)


@pytest.mark.parametrize(
    ("architecture", "how"), [("mixtral", "eager"), ("deepseek_v3", "eager"), ("deepseek_v3", "compile")]
)
def test_models_of_transformers_decide_as_before(architecture, how, capsys):
    pytest.importorskip("transformers")
    assert router.main(["--model", architecture, "--tokens", "8", "--how", how]) == 0
    assert "16 of 16 decisions equal" in capsys.readouterr().out


def test_without_tokens_there_is_nothing_to_route(capsys):
    with pytest.raises(SystemExit):
        router.main(["--tokens", "0"])
    assert "--tokens is 0; accepted: 1 or more" in capsys.readouterr().err


def test_calls_are_told_by_their_place_in_a_queue_and_by_what_went_before():
    device, made = FakeDevice(), 0

    def fn(x):
        nonlocal made
        made += 1
        leading = device.leading[-1] if device.leading else 0
        slower = 0.25 * ((made - 2) % 20)  # one call goes before those of the queue
        device.launch(leading + slower)

    called = Timed("made", fn, [Arguments((torch.ones(1),), {})] * 3)
    told = launch_queue.lines([called], device)
    assert told[0].startswith("== 20 calls behind one delay") and len(told) == 2 * (1 + 4)
    by_place = [0.25 * place for place in range(20)]
    for title, line, leading in zip(told[::2], told[1::2], (0, 16, 17, 18, 19), strict=True):
        assert not leading or f"each alone after {leading} empty launches" in title
        name, *times = line.split()
        assert name == "made" and [float(us) for us in times] == [leading + us for us in by_place]


def test_calls_that_outlast_their_delay_are_an_error():
    device = FakeDevice()

    def quick():
        device.host += 4e-4

    def slow():
        device.host += 6e-4

    assert len(launch_queue.between_events([quick] * 3, 0, device)) == 3
    with pytest.raises(RuntimeError, match="3 calls took the host longer than the delay"):
        launch_queue.between_events([slow] * 3, 0, device)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_tells_its_use(path):
    """And does nothing else."""
    told = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True, timeout=100)
    assert told.returncode == 0 and told.stdout.startswith(f"usage: {path.name}") and not told.stderr
