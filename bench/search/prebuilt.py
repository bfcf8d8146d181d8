"""All that a search will try, compiled for a GPU that is not here, into a folder that is carried to it.

    FOLDER/identity.json   by language: the compilers and versions that built it
    FOLDER/triton          a cache of Triton's, FOLDER/tilus one of tilus'

`build` fills it, on a machine with nvcc and no GPU; `adopt` puts it into the caches of the GPU's machine, where a build
then finds its program. What each language finds a program by is said in kernels_*/offline.py.
"""

import importlib
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.measure.clock import Announce, first_line
from triton_vs_tilus.bench.measure.process import Children, Died
from triton_vs_tilus.bench.search.race import Budget
from triton_vs_tilus.bench.search.space import compiled_fields, first_tries
from triton_vs_tilus.common.building import target_of
from triton_vs_tilus.common.files import InvalidFile, locked, replace_text
from triton_vs_tilus.common.kernel import LANGUAGES, Config, Kernel, Language
from triton_vs_tilus.common.problem import Problem

IDENTITY = "identity.json"
DEADLINE_S = 600.0  # for the programs of one job
# Kernels are compiled, not interpreted; a program is kept without what only a reader of the compiler's output needs.
ENVIRONMENT = {"TRITON_INTERPRET": "0", "TRITON_STORE_BINARY_ONLY": "1"}


Finished = Callable[[int, int], None]


class Mismatch(Exception):
    """The folder is of other compilers than this machine's; the message says which."""


@dataclass
class Built:
    """What a call of `build` did. configs: that are built now. programs: by language, new ones. failed: reasons by
    kernel and config in words."""

    configs: int = 0
    programs: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def build(
    folder: Path,
    problems: Sequence[Problem],
    kernels: Sequence[Kernel],
    *,
    target: str,
    slug: str,
    budget: Budget | None,
    finished: Finished = lambda done, jobs: None,
) -> Built:
    """Compiles what a search with this budget tries first, on a device of this slug, of every kernel on every problem;
    without a budget what is launched where no config is given. The rest is as in `build_these`."""
    wanted = [
        (kernel, problem, config)
        for kernel in kernels
        for problem in (problems if not kernel.tuned_as else ())
        if kernel.language in LANGUAGES and problem.op == kernel.op
        for config in _tries(kernel, problem, budget, slug)
    ]
    return build_these(folder, wanted, target=target, finished=finished)


def build_these(
    folder: Path,
    wanted: Iterable[tuple[Kernel, Problem, Config]],
    *,
    target: str,
    finished: Finished = lambda done, jobs: None,
) -> Built:
    """Compiles these kernels of both languages on these problems, by these configs.

    target: as nvcc names it, 'sm_90a'. finished: called with the number of jobs that have ended, and of all.
    Raises Mismatch where the folder holds programs of other compilers.
    """
    jobs: dict[tuple[Any, ...], list[tuple[Problem, Config]]] = {}
    for kernel, problem, config in wanted:
        if kernel.build:
            # One process compiles once what configs and problems share.
            jobs.setdefault((kernel.full_name, compiled_fields(config)), []).append((problem, config))
    start, done = time.monotonic(), Built(configs=sum(map(len, jobs.values())))
    with Children(len(os.sched_getaffinity(0)), DEADLINE_S, ENVIRONMENT) as children:
        languages = list(dict.fromkeys(contenders.find(name).language.value for name, _ in jobs))
        for language in languages:
            (here,) = children.each(_identity, [(language,)])
            if isinstance(here, Died):
                raise Mismatch(f"{language} cannot be compiled here: {here.message}")
            claim(folder, language, {**here, "target": target})
        arguments = [(name, pairs, target, str(folder)) for (name, _), pairs in jobs.items()]
        before = {language: programs(folder, language) for language in languages}
        answers = children.each(_build, arguments, lambda count: finished(count, len(arguments)))
    for (name, pairs, *_), answer in zip(arguments, answers, strict=True):
        reasons = {str(pairs[0][1]): answer.message} if isinstance(answer, Died) else answer
        done.failed |= {f"{name} {config}": reason for config, reason in reasons.items()}
    done.programs = {language: programs(folder, language) - count for language, count in before.items()}
    done.seconds = time.monotonic() - start
    return done


def _tries(kernel: Kernel, problem: Problem, budget: Budget | None, slug: str) -> list[Config]:
    if budget is None:
        config = contenders.launched(kernel, problem, slug)
        return [] if config is None else [config]
    return first_tries(kernel, problem, budget, slug) if kernel.supports(problem, None) is None else []


def adopt(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Puts a carried folder into this machine's caches. Returns the number of its programs by language; and the
    languages of which it took none, as this machine's compilers or GPU are others, and would find none, or a wrong one;
    or as they cannot be asked.

    Raises Mismatch for what is no such folder, InvalidFile for an invalid identity.json.
    """
    known = _read(folder)
    if not known:
        raise Mismatch(f"--adopt is {folder}; accepted: a folder that bench/prebuild.py built programs into")
    refused = {language: reason for language, built in known.items() if (reason := _refusal(language, built))}
    taken = {}
    for language in known:
        if language not in refused:
            # A folder may be marked for a language none of whose programs came to be built.
            has_some = programs(folder, language) > 0
            taken[language] = _offline(language).adopt(folder / language) if has_some else 0
    return taken, refused


def _refusal(language: str, built: dict[str, str]) -> str:
    """Why this machine can use no program that was built by these, or ''."""
    try:
        here = _offline(language).identity()
    except (OSError, subprocess.CalledProcessError, ImportError) as error:  # a package that is not there is the last
        return f"this machine's compiler cannot be asked: {first_line(error)}"
    if torch.cuda.is_available():
        here |= {"target": target_of(torch.cuda.get_device_capability())}
    return _differing(built, here)


def programs(folder: Path, language: str) -> int:
    """How many there are."""
    return sum(1 for _ in (folder / language).glob(_offline(language).PROGRAMS))


def claim(folder: Path, language: str, here: dict[str, str]) -> None:
    """Marks the folder as one for this language's programs of these compilers (kernels_*/offline.identity, and the
    target). Raises Mismatch where it holds those of others."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / IDENTITY):  # another call may build into the folder meanwhile
        known = _read(folder)
        if differing := _differing(known.get(language, here), here):
            raise Mismatch(f"{folder} holds other programs of {language}: {differing}")
        replace_text(folder / IDENTITY, msgspec.json.format(msgspec.json.encode(known | {language: here})).decode())


def _differing(built: dict[str, str], here: dict[str, str]) -> str:
    """What differs, of what is known here."""
    pairs = ((what, built.get(what, "not told"), ours) for what, ours in here.items())
    return "; ".join(f"{what} is {theirs} there, {ours} here" for what, theirs, ours in pairs if theirs != ours)


def _read(folder: Path) -> dict[str, dict[str, str]]:
    """Raises InvalidFile."""
    path = folder / IDENTITY
    try:
        known = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, str]]) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: {error}; accepted: what bench/prebuild.py wrote") from error
    accepted = [language.value for language in LANGUAGES]
    if unknown := known.keys() - set(accepted):
        raise InvalidFile(f"{path}: {', '.join(sorted(unknown))}; accepted: {', '.join(accepted)}")
    return known


def _offline(language: str) -> Any:
    return importlib.import_module(f"{contenders.PACKAGES[Language(language)]}.offline")


# What runs in children.


def _identity(language: str, *, announce: Announce) -> dict[str, str]:
    return _offline(language).identity()


def _build(
    name: str, pairs: Iterable[tuple[Problem, Config]], target: str, folder: str, *, announce: Announce
) -> dict[str, str]:
    """The reasons of the configs that cannot be built."""
    kernel = contenders.find(name)
    offline = _offline(kernel.language.value)
    offline.compile_for(target, Path(folder) / kernel.language.value)
    failed: dict[str, str] = {}
    for problem, config in pairs:
        announce(f"{name} {config}")
        try:
            assert kernel.build is not None
            offline.build(partial(kernel.build, problem, config))
        except Exception as error:
            failed[str(config)] = first_line(error)
    return failed
