"""Runs a tilus Script from a file on the CPU.

    python -m triton_vs_tilus.kernels_tilus.interpreter FILE.py:CLASS [--init NAME=VALUE ...] --args VALUE ...

A VALUE is a Python expression. In those of --args stand torch and its functions (`randn(64, 32)`), and the arguments by
name; a tensor is converted to the type that the parameter points to.
"""

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import tilus
import torch
from tilus.hidet.ir.type import DataType, PointerType
from tilus.lang.instantiated_script import InstantiatedScript

from triton_vs_tilus.kernels_tilus.interpreter import errors
from triton_vs_tilus.kernels_tilus.interpreter.dtypes import form
from triton_vs_tilus.kernels_tilus.interpreter.errors import KernelError, KernelWarning
from triton_vs_tilus.kernels_tilus.interpreter.explore import explore
from triton_vs_tilus.kernels_tilus.interpreter.launch import run, transpile, using
from triton_vs_tilus.kernels_tilus.interpreter.machine import Step
from triton_vs_tilus.kernels_tilus.interpreter.on_cpu import load_module
from triton_vs_tilus.kernels_tilus.interpreter.schedule import drawn

SHOWN = 4  # elements of a tensor


def main(argv: list[str] | None = None) -> int:
    """The exit status: 0, or 1 where the Script makes a mistake."""
    parser = _parser()
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    try:
        script = _script(options.script, options.init)
        named = _arguments(script, options.args)
        warn = [_kind(name) for name in options.warn.split(",") if name]
    except (ValueError, TypeError, OSError, NameError, SyntaxError, AttributeError) as error:
        parser.error(str(error))
    warnings.showwarning = lambda message, *_: print(f"warning: {message}")
    warnings.simplefilter("always", KernelWarning)
    with using(warn=warn, candidate=options.candidate, debug=_trace if options.trace else None):
        try:
            if options.program:
                print(transpile(script, *named.values()))
                return 0
            if options.schedules:
                return _explore(script, named, options.schedules, options.seed)
            return _run(script, named, options)
        except (TypeError, ValueError) as error:
            parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m triton_vs_tilus.kernels_tilus.interpreter",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("script", help="FILE.py:CLASS")
    parser.add_argument("--init", nargs="*", default=[], metavar="NAME=VALUE", help="what the Script's __init__ takes")
    parser.add_argument("--args", nargs="*", default=[], metavar="VALUE", help="what its __call__ takes, or NAME=VALUE")
    parser.add_argument("--candidate", type=int, help="number of an autotuned schedule; else the first that transpiles")
    parser.add_argument("--schedules", type=int, metavar="N", help="try N orders of blocks and groups of threads")
    parser.add_argument("--seed", type=int, default=0, help="of the order of blocks; with --schedules, the first")
    parser.add_argument(
        "--expect", action="append", default=[], metavar="NAME=VALUE", help="what an argument has to be"
    )
    parser.add_argument("--tolerance", type=float, default=1e-2, help="of --expect, relative and absolute")
    parser.add_argument("--warn", default="", metavar="KIND,...", help="errors to warn of, such as Race,MissingSync")
    parser.add_argument("--trace", action="store_true", help="print every instruction of every block")
    parser.add_argument("--program", action="store_true", help="print the tile-level Program, and run nothing")
    return parser


def _script(name: str, init: list[str]) -> InstantiatedScript:
    path, _, wanted = name.rpartition(":")
    if not path:
        raise ValueError(f"script is {name!r}; accepted: FILE.py:CLASS")
    module = load_module(Path(path))
    found = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, tilus.Script) and value is not tilus.Script
    }
    if wanted not in found:
        raise ValueError(f"{path} has no Script {wanted!r}; accepted: {', '.join(found) or 'none, it has no Script'}")
    return found[wanted](**{key: _value(text, {}) for key, text in map(_pair, init)})


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name.isidentifier():
        raise ValueError(f"{text!r}; accepted: NAME=VALUE")
    return name, value


def _value(text: str, names: dict[str, Any]) -> Any:
    return eval(text, {**vars(torch), "torch": torch, "tilus": tilus, **names})


def _arguments(script: InstantiatedScript, texts: list[str]) -> dict[str, Any]:
    """The arguments by the parameters' names, in their order."""
    kinds = dict(zip(script.params.param_names, script.params.param_types, strict=True))
    names, given = list(kinds), {}
    for place, text in enumerate(texts):
        head = text.partition("=")[0]
        if head in kinds and text[len(head) : len(head) + 2] != "==":
            name, text = _pair(text)
        elif place < len(names):
            name = names[place]
        else:
            raise TypeError(f"{len(texts)} arguments; accepted: {', '.join(names)}")
        given[name] = _typed(_value(text, given), kinds[name])
    if missing := [name for name in names if name not in given]:
        called = f"{script.script_cls.__name__} is called without {', '.join(missing)}"
        raise TypeError(f"{called}; accepted: {', '.join(names)}")
    return {name: given[name] for name in names}


def _typed(value: Any, kind: Any) -> Any:
    pointed = kind.base_type if isinstance(kind, PointerType) else None
    if isinstance(value, torch.Tensor) and isinstance(pointed, DataType):
        held = form(pointed)
        return value if held.takes(value.dtype) or held.stored is None else value.to(held.stored)
    return value


def _kind(name: str) -> type[KernelError]:
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, KernelError)):
        kinds = [value for value in vars(errors).values() if isinstance(value, type)]
        known = [kind.__name__ for kind in kinds if issubclass(kind, KernelError)]
        raise ValueError(f"--warn {name}; accepted: {', '.join(known)}")
    return kind


def _trace(step: Step) -> None:
    tile = "" if step.tile is None else f" {tuple(step.tile.shape)} {_few(step.tile)}"
    print(f"{step.block} {step.where}{tile}")


def _few(tile: torch.Tensor) -> str:
    flat = tile.flatten()
    values = [f"{value:.6g}" for value in flat[:SHOWN].tolist()]
    return "[" + ", ".join(values) + (", ...]" if flat.numel() > SHOWN else "]")


def _run(script: InstantiatedScript, named: dict[str, Any], options: argparse.Namespace) -> int:
    before = {name: value.clone() for name, value in named.items() if isinstance(value, torch.Tensor)}
    try:
        run(script, *named.values(), schedule=drawn(options.seed))
    except KernelError as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    for name, old in before.items():
        new = named[name]
        if not torch.equal(_bytes(old), _bytes(new)):
            print(f"{name}: {str(new.dtype).removeprefix('torch.')} {list(new.shape)} = {_few(new)}")
    failed = 0
    for name, text in map(_pair, options.expect):
        if name not in named:
            print(f"--expect is of {name}; accepted: {', '.join(named)}")
            return 2
        try:
            wanted = _value(text, {**named, **{f"{key}_before": old for key, old in before.items()}})
            torch.testing.assert_close(
                named[name], wanted, rtol=options.tolerance, atol=options.tolerance, check_dtype=False
            )
            print(f"{name} is {text}")
        except AssertionError as error:
            print(f"{name} is not {text}: {error}")
            failed = 1
    return failed


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten().view(torch.uint8)


def _explore(script: InstantiatedScript, named: dict[str, Any], count: int, first: int) -> int:
    found = explore(script, *named.values(), seeds=range(first, first + count))
    for seed, error in list(found.failures.items())[:1]:
        print(f"--seed {seed} ({found.schedule(seed)})\n{type(error).__name__}: {error}")
    if found.differs:
        seed, difference = max(found.differs.items(), key=lambda item: item[1])
        print(
            f"{len(found.differs)} orders differ from the first in a result, by up to {difference:.3g} (--seed {seed})"
        )
    if found.failures:
        print(f"{len(found.failures)} of {found.runs} orders fail")
        return 1
    print(f"{found.runs} orders ran" + ("" if found.differs else ", with bitwise the same results"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
