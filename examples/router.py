"""The routers of transformers' mixture-of-experts models, computed by `linear` of a kernel package.

    pip install --editable '.[models]'
    python examples/router.py                              # models of real router sizes: the same decisions?
    python examples/router.py --language tilus --how compile

    # in a program of your own, with examples/ on sys.path
    from triton_vs_tilus.kernels_triton import linear, prepare
    from router import prepare_routers, swap_routers
    swap_routers(model, linear)
    prepare_routers(model, prepare, max_tokens=1024)       # before a CUDA graph is captured

A router's product is computed by `linear`; what its model makes of the logits is the model's own code. Of the models
that are built here the router is as large as the released one's, everything else is small. Exits 1 where a decision
differs that is no tie.
"""

import argparse
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

# Of transformers, whose configs have the released models' sizes by default.
ARCHITECTURES = ("mixtral", "qwen3_moe", "olmoe", "gpt_oss", "deepseek_v3", "glm4_moe")
SMALL = {
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "first_k_dense_replace": 0,
    "pad_token_id": None,
}


def swap_routers(model: nn.Module, linear: Callable[..., Tensor]) -> list[str]:
    """Has `linear` compute the logits of every router of a model, in place. Returns the routers' names.

    Their parameters, class and outputs stay. Swap after the model has its dtype and buffers, and not before a copy: a
    copy's routers would read the original's parameters. Raises ValueError for a model that has none.
    """
    routers = routers_of(model)
    if not routers:
        raise ValueError(f"{type(model).__name__} has no router; accepted: modules whose class ends in Router")
    for router in routers.values():
        router.forward = _forward(router, linear)
    return list(routers)


def prepare_routers(model: nn.Module, prepare: Callable[..., Any], max_tokens: int) -> None:
    """Has `prepare` of a kernel package build what the swapped routers call for 1 to max_tokens tokens."""
    for router in routers_of(model).values():
        bias, out_dtype = getattr(router, "bias", None), _logits_dtype(router)
        prepare(router.weight, max_tokens=max_tokens, bias=bias, out_dtype=out_dtype)


def routers_of(model: nn.Module) -> dict[str, nn.Module]:
    """By name, the modules of transformers 5 whose class ends in Router, with a weight [experts, hidden]."""
    named = {name: module for name, module in model.named_modules() if type(module).__name__.endswith("Router")}
    weights = {name: getattr(module, "weight", None) for name, module in named.items()}
    return {name: named[name] for name, weight in weights.items() if isinstance(weight, Tensor) and weight.dim() == 2}


def _forward(router: nn.Module, linear: Callable[..., Tensor]) -> Callable[[Tensor], Any]:
    """The router's forward, with its product by `linear`. The model's own code is run on the logits in place of the
    hidden states, with a product that returns what it is given."""
    own, weight, dtype = type(router).forward, router.weight, _logits_dtype(router)
    product = types.ModuleType("functional")
    vars(product).update(vars(torch.nn.functional), linear=_given)
    # Without a __name__, by which torch.compile would look for them in the model's own module.
    names = {name: value for name, value in own.__globals__.items() if name != "__name__"} | {"F": product}
    choose = types.FunctionType(own.__code__, names, own.__name__, own.__defaults__)
    attributes = {name: value for name, value in vars(router).items() if not name.startswith("_")}
    stands_in = types.SimpleNamespace(**attributes | dict(router.named_buffers()))
    stands_in.hidden_dim = weight.shape[0]
    stands_in.weight, stands_in.bias = weight.new_empty(0, dtype=dtype), None

    def forward(hidden_states: Tensor) -> Any:
        x = hidden_states.reshape(-1, router.weight.shape[1])
        logits = linear(x, router.weight, getattr(router, "bias", None), out_dtype=dtype)
        return choose(stands_in, logits)

    return forward


def _logits_dtype(router: nn.Module) -> torch.dtype:
    """By the model's own code: some compute in fp32."""
    with torch.no_grad():
        return type(router).forward(router, router.weight.new_zeros(1, router.weight.shape[1]))[0].dtype


def _given(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x


def small_model(architecture: str, dtype: torch.dtype, device: str) -> nn.Module:
    """A model of random weights whose routers have the released sizes. It takes hidden states, and no tokens."""
    from transformers import CONFIG_MAPPING, AutoModel

    config = CONFIG_MAPPING[architecture]()
    for name, value in SMALL.items():
        if hasattr(config, name):
            setattr(config, name, value)
    if hasattr(config, "layer_types") and config.layer_types:
        config.layer_types = config.layer_types[: config.num_hidden_layers]
    torch.manual_seed(0)
    model = AutoModel.from_config(config).to(device, dtype).eval().requires_grad_(False)
    for router in routers_of(model).values():
        nn.init.normal_(router.weight, std=router.weight.shape[1] ** -0.5)
    return model


def decisions(model: nn.Module, hidden: Tensor, call: Callable[..., Any]) -> list[tuple[Tensor, Tensor]]:
    """(logits, experts) of every router, as the model takes these hidden states [1, T, hidden]."""
    found: list[tuple[Tensor, Tensor]] = []
    routers = routers_of(model).values()
    hooks = [each.register_forward_hook(lambda _, __, out: found.append((out[0].float(), out[-1]))) for each in routers]
    try:
        call(inputs_embeds=hidden)
    finally:
        for hook in hooks:
            hook.remove()
    return found[-len(routers) :]


def captured(model: nn.Module) -> Callable[..., Any]:
    """The model's call in a CUDA graph, that is replayed once."""

    def call(**inputs: Tensor) -> None:
        model(**inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(**inputs)
        graph.replay()
        torch.cuda.synchronize()

    return call


def differing(mine: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor], rounding: float) -> tuple[int, int]:
    """Tokens of which other experts are chosen: where the chosen logits tie within the rounding, and where not."""
    ties = others = 0
    for logits, own, other in zip(theirs[0], mine[1], theirs[1], strict=True):
        swapped = set(own.tolist()) ^ set(other.tolist())
        if swapped:
            scores = logits[sorted(swapped)]
            tied = float(scores.max() - scores.min()) <= rounding * float(logits.abs().max())
            ties, others = ties + tied, others + (not tied)
    return ties, others


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", choices=("triton", "tilus"), default="triton")
    parser.add_argument("--model", choices=ARCHITECTURES, action="append", help="repeatable (default: all)")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--how", choices=("eager", "compile", "graph"), default="eager", help="the models are called")
    args = parser.parse_args(arguments)
    if args.tokens < 1:
        parser.error(f"--tokens is {args.tokens}; accepted: 1 or more")
    if importlib.util.find_spec("transformers") is None:
        parser.error("transformers is not installed: pip install --editable '.[models]'")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    package = importlib.import_module(f"triton_vs_tilus.kernels_{args.language}")
    wrong = 0
    for architecture in args.model or ARCHITECTURES:
        model = small_model(architecture, torch.bfloat16, device)
        hidden = torch.randn(1, args.tokens, model.config.hidden_size, device=device).to(torch.bfloat16)
        with torch.no_grad():
            ways = {"eager": lambda model: model, "compile": torch.compile, "graph": captured}
            before = decisions(model, hidden, ways[args.how](model))
            names = swap_routers(model, package.linear)
            if device == "cuda":
                prepare_routers(model, package.prepare, args.tokens)
            torch._dynamo.reset()
            after = decisions(model, hidden, ways[args.how](model))
        # A logit is rounded to bf16; the second layer has seen what the first one made of it.
        pairs = [differing(mine, theirs, 2.0**-7) for mine, theirs in zip(after, before, strict=True)]
        apart = max(float((mine[0] - theirs[0]).abs().max()) for mine, theirs in zip(after, before, strict=True))
        size = "x".join(map(str, model.get_submodule(names[0]).weight.shape))
        ties, others = map(sum, zip(*pairs, strict=True))
        count = len(after) * args.tokens
        print(f"{architecture}: {len(names)} routers {size}, logits apart by {apart:.1e} at most;", end=" ")
        print(f"{count - ties - others} of {count} decisions equal, {ties} at ties, {others} others")
        wrong += others
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
