"""Both kernel packages, the references and the candidates in one list; and whose language cannot run here, and why."""

import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from triton_vs_tilus.bench.candidate import candidate
from triton_vs_tilus.bench.cli import named_by
from triton_vs_tilus.bench.ops import BASELINES
from triton_vs_tilus.bench.rows.environment import not_installed
from triton_vs_tilus.bench.rows.row import BORROWED, MATCHED, SearchRecord
from triton_vs_tilus.bench.sources import is_stale
from triton_vs_tilus.common import compilers, space, tuned
from triton_vs_tilus.common.kernel import LANGUAGES, Config, Kernel, Language, nothing_to_search
from triton_vs_tilus.common.problem import Problem

SEARCH_FIELDS = frozenset(SearchRecord.__struct_fields__)
# Imported when first asked for, each on its own: one that cannot be does not take the others along.
PACKAGES = {
    Language.TORCH: "triton_vs_tilus.bench.references",
    Language.TRITON: "triton_vs_tilus.kernels_triton",
    Language.TILUS: "triton_vs_tilus.kernels_tilus",
    Language.PUBLISHED_TRITON: "triton_vs_tilus.bench.references.published_triton",
    Language.PUBLISHED_TILUS: "triton_vs_tilus.bench.references.published_tilus",
    Language.GLUON: "triton_vs_tilus.bench.references.gluon",
    Language.TLX: "triton_vs_tilus.bench.references.tlx",
}
# Where the languages run whose contenders are checked without a GPU.
ON_CPU = {
    Language.TORCH: "on the CPU",
    Language.TRITON: "in Triton's interpreter",
    Language.TILUS: "in tilus' interpreter",
    Language.PUBLISHED_TRITON: "in Triton's interpreter",
    Language.PUBLISHED_TILUS: "in tilus' interpreter",
    Language.CANDIDATE: "on the CPU",
}
# What brings a language, where this project's extra of the language's name does.
OPTIONAL = {
    Language.HELION: "helion",
    Language.FLASHINFER: "flashinfer-python",
    Language.HUMMING: "humming-kernels",
}
TWINS = (Language.TRITON, Language.TILUS)
SPLIT = re.compile(r"@s([1-9]\d*)$")
CANDIDATE = f"{Language.CANDIDATE.value}/"
NOT_SEARCHED = "no config was searched for this very problem; accepted: problems of the tuned table (bench/tuned.py)"


@lru_cache(maxsize=len(PACKAGES))
def _imported(language: Language) -> tuple[tuple[Kernel, ...], str]:
    """The contenders of a language's package, or none and the reason why it cannot be imported."""
    package = PACKAGES[language]
    try:
        return importlib.import_module(package).KERNELS, ""
    except Exception as error:  # whatever a broken install raises becomes the reason shown
        return (), f"{package} cannot be imported: {type(error).__name__}: {error}"


def not_importable() -> dict[Language, str]:
    """The languages none of whose contenders is known, as their package cannot be imported, with the reason."""
    return {language: reason for language in PACKAGES if (reason := _imported(language)[1])}


def all_contenders(candidates: Sequence[str] = ()) -> list[Kernel]:
    """References first, then Triton, tilus, the sources' own designs in either, TLX, and the candidates, each given as
    'FILE.py:FUNCTION'.

    Raises ValueError or FileNotFoundError for a candidate that is not one.
    """
    known = [kernel for language in PACKAGES for kernel in _imported(language)[0]]
    return known + [candidate(place) for place in candidates]


def find(full_name: str) -> Kernel:
    """The contender of this name, candidates included ('candidate/FILE.py:FUNCTION'); no other language is imported
    for it. Raises KeyError with the known names, or with the reason why this language's cannot be imported."""
    if full_name.startswith(CANDIDATE):
        return candidate(full_name.removeprefix(CANDIDATE))
    if SPLIT.search(full_name):
        return _with_split(full_name)
    if full_name.endswith(BORROWED):
        return _borrowing(full_name)
    if MATCHED.search(full_name):
        return _matched(full_name)
    named = (language for language in PACKAGES if full_name.startswith(f"{language.value}/"))
    known, reason = _imported(next(named, Language.TORCH))  # with torch's are those of all other references
    for kernel in known:
        if kernel.full_name == full_name:
            return kernel
    names = ", ".join(kernel.full_name for kernel in all_contenders())
    raise KeyError(f"no contender {full_name!r}: {reason or f'there are {names}'}")


def find_or_none(full_name: str) -> Kernel | None:
    """As `find`; None where there is no contender of this name here."""
    try:
        return find(full_name)
    except KeyError:
        return None


def _with_split(full_name: str) -> Kernel:
    """'tilus/semaphore.fp32@s4': the kernel with the config it would take, except for its split: what one more split
    costs is seen by asking for several. Raises KeyError as `find`, and for a kernel that splits nothing."""
    base_name, _, split_k = full_name.partition("@s")
    base = find(base_name)
    if "split_k" not in {field.name for field in fields(base.config_type)}:
        raise KeyError(f"no contender {full_name!r}: {base_name} has no split")

    def config_of(problem: Problem) -> Config:
        return pick(made, problem, _slug())[0]

    def supports(problem: Problem, config: Config | None) -> str | None:
        return base.supports(problem, None) or base.supports(problem, config or config_of(problem))

    made = _given(base, f"@s{split_k}", config_of, supports)
    return made


def _borrowing(full_name: str) -> Kernel:
    """'tilus/cluster@borrowed': the kernel with the config that it would take without the one searched for the problem:
    what a shape that was not searched loses is seen beside 'tilus/cluster'. It takes only searched problems.
    Raises KeyError as `find`, and for a kernel that is not searched."""
    base = find(full_name.removesuffix(BORROWED))
    if not _is_searched(base):
        accepted = "kernels that --tune searches"
        raise KeyError(f"no contender {full_name!r}: {base.full_name} has no configs to search; accepted: {accepted}")

    def config_of(problem: Problem) -> Config:
        return tuned.borrowed(base, problem, _slug())[0]

    def supports(problem: Problem, config: Config | None) -> str | None:
        if reason := base.supports(problem, config):
            return reason
        return None if config is not None or _has_own(base, problem, _slug()) else NOT_SEARCHED

    return _given(base, BORROWED, config_of, supports)


def _is_searched(kernel: Kernel) -> bool:
    """Whether it has entries of its own in tuned tables, once it was searched."""
    return kernel.space is not nothing_to_search and not kernel.tuned_as


def _has_own(kernel: Kernel, problem: Problem, slug: str) -> bool:
    return tuned.pick(kernel, problem, slug)[1] == "tuned"


def _matched(full_name: str) -> Kernel:
    """'tilus/atomic@triton': the kernel with the config that the other language's would take, where it can run that:
    beside 'triton/atomic' it shows what only the language changes. 'tilus/decompose_k.vector@cluster': with that of
    another kernel of its language: beside 'tilus/cluster' what only the protocol changes. Raises KeyError as `find`,
    and for a kernel that has no such other."""
    base_name, _, given = full_name.partition("@")
    base, lender = find(base_name), _lender(full_name)

    def config_of(problem: Problem) -> Config:
        return _lent(base, lender, problem, _slug())

    def supports(problem: Problem, config: Config | None) -> str | None:
        if reason := base.supports(problem, config) or lender.supports(problem, None):
            return reason
        found = config or config_of(problem)
        return f"{lender.full_name}'s config: {found}" if isinstance(found, str) else None

    return _given(base, f"@{given}", config_of, supports)


def _lender(full_name: str) -> Kernel:
    """The kernel whose config a matched one takes. Raises KeyError as `_matched`."""
    base_name, _, given = full_name.partition("@")
    language, _, name = base_name.partition("/")
    twins = [twin.value for twin in TWINS]
    other = f"{given}/{name}" if given in twins else f"{language}/{given}"
    if language not in twins or other == base_name:
        raise KeyError(f"no contender {full_name!r}: {given} is no other language or kernel than {base_name}'s")
    if (lender := find_or_none(other)) is None:
        _, reason = _imported(Language(other.partition("/")[0]))
        accepted = "after @ stands s and a split, borrowed, triton, tilus, or another kernel"
        raise KeyError(f"no contender {full_name!r}: {reason or accepted}")
    if lender.op != find(base_name).op:
        raise KeyError(f"no contender {full_name!r}: {other} is of another operation")
    return lender


def _lent(base: Kernel, lender: Kernel, problem: Problem, slug: str) -> Config | str:
    """The config that the lender would take on a device of this slug, or why `base` cannot run it."""
    return space.matched(base, problem, lender, pick(lender, problem, slug)[0])


def _given(
    base: Kernel,
    given: str,
    config_of: Callable[[Problem], Config],
    supports: Callable[[Problem, Config | None], str | None],
) -> Kernel:
    """The kernel under a name of its own, with a config that it does not choose itself."""

    def launch(*args: Any, config: Config, **options: Any) -> Tensor:
        return base.launch(*args, config=config, **options)

    variant = f"{base.variant}{given}"
    return replace(
        base, variant=variant, launch=launch, space=nothing_to_search, default_config=config_of, supports=supports
    )


def _slug() -> str:
    on_gpu = torch.cuda.is_available()
    return tuned.slug_of(torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu"))


def counterpart(full_name: str) -> str | None:
    """Whom the contender is held against, language against language: 'triton/atomic' of 'tilus/atomic', and of
    'tilus/atomic@triton', which takes its config; config against config: 'tilus/atomic' of 'tilus/atomic@borrowed'.
    None of what is in neither language, or is given its split."""
    if full_name.endswith(BORROWED):
        return full_name.removesuffix(BORROWED)
    base, _, given = full_name.partition("@")
    language, _, name = base.partition("/")
    others = [other.value for other in TWINS if other.value != language]
    of_a_pair = len(others) < len(TWINS) and (not given or given in others)
    return f"{others[0]}/{name}" if of_a_pair else None


def pick(
    kernel: Kernel, problem: Problem, slug: str
) -> tuple[Config, tuned.Source | Literal["split", "matched", "stale"]]:
    """As tuned.pick, and 'stale' where the kernel or its space has changed since it was searched for this very problem,
    or nobody knows. Of a contender whose split is given, what the kernel itself would take except for the split; of a
    matched one, what the kernel would take that it is matched with; and 'split' or 'matched' where that was searched
    for this very problem. Of a borrowing one as tuned.borrowed. Raises ValueError where the kernel cannot run that, or
    has no config in whose place it would borrow one."""
    if kernel.full_name.endswith(BORROWED):
        base = find(kernel.full_name.removesuffix(BORROWED))
        if not _has_own(base, problem, slug):
            raise ValueError(NOT_SEARCHED)
        return tuned.borrowed(base, problem, slug)
    if other := MATCHED.search(kernel.full_name):
        lender = _lender(kernel.full_name)
        _, source = pick(lender, problem, slug)
        config = _lent(find(kernel.full_name[: other.start()]), lender, problem, slug)
        if isinstance(config, str):
            raise ValueError(f"{lender.full_name}'s config: {config}")
        return config, "matched" if source == "tuned" else source
    if not (given := SPLIT.search(kernel.full_name)):
        config, found = tuned.pick(kernel, problem, slug)
        entry = tuned.entry_of(kernel, problem, slug) if found == "tuned" else None
        return config, "stale" if entry is not None and is_stale(kernel, entry) else found
    config, source = pick(find(kernel.full_name[: given.start()]), problem, slug)
    return replace(config, split_k=int(given[1])), "split" if source == "tuned" else source


def search_of(kernel: Kernel, problem: Problem, slug: str) -> SearchRecord | None:
    """The search of the table's entry for this very problem; None where nobody knows how far it came."""
    entry = tuned.entry_of(kernel, problem, slug)
    told = entry.get("search", {}) if entry is not None else {}
    known = {name: value for name, value in told.items() if name in SEARCH_FIELDS}
    return msgspec.convert(known, SearchRecord) if known.keys() == SEARCH_FIELDS else None


def launched(kernel: Kernel, problem: Problem, slug: str) -> Config | None:
    """What the kernel would be launched with on a device of this slug; None where it, or the kernel whose config it is
    given, cannot take the problem, or a borrowing one has no config of its own."""
    base = find(SPLIT.sub("", MATCHED.sub("", kernel.full_name.removesuffix(BORROWED))))
    asked = [base, _lender(kernel.full_name)] if MATCHED.search(kernel.full_name) else [base]
    try:
        refused = any(one.supports(problem, None) for one in asked)
        config = None if refused else pick(kernel, problem, slug)[0]
    except ValueError:
        return None
    return None if config is None or base.supports(problem, config) else config


def choose(
    kernels: Iterable[Kernel],
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    references: bool = False,
    matched: bool = False,
    borrowed: bool = False,
) -> list[Kernel]:
    """Those that `only` names (where it is empty: all but those on request), with `references` those on request, of the
    pairs' languages where `only` is empty, and candidates; none that `skip` names; the baseline always. With `matched`
    each of both languages with the other's config too, with `borrowed` each that is searched with the config that it
    would take were it not.

    A name is a full name, or part of one: language/file, file.variant, file, language; or a pattern (*, ?, [..]) of any
    of these; or, in `only`, a full name and a split, '@s4', or the language or kernel whose config it takes, '@tilus'
    or '@cluster', or '@borrowed'. Raises ValueError for one that names nothing, and where `skip` leaves none of `only`.
    """
    kernels = list(kernels)
    for name in only:
        if SPLIT.search(name) or MATCHED.search(name) or name.endswith(BORROWED):
            try:
                kernels.append(find(name))
            except KeyError as error:
                raise ValueError(error.args[0]) from None
    for flag, patterns in (("--only", only), ("--skip", skip)):
        for pattern in patterns:
            if not any(_named(kernel, pattern) for kernel in kernels):
                known = {name for kernel in kernels for name in _names(kernel)}
                accepted = f"names and parts of {named_by('bench/compare.py --list -v', pattern, sorted(known))}"
                reasons = "".join(f"; {reason}" for reason in not_importable().values())
                raise ValueError(f"{flag} is {pattern!r}; accepted: {accepted}{reasons}")
    asked = [
        kernel
        for kernel in kernels
        if kernel.full_name in BASELINES
        or (not only and not kernel.on_request)
        or (references and kernel.on_request and not (only and kernel.language in LANGUAGES))
        or kernel.language is Language.CANDIDATE  # brought to be seen
        or any(_named(kernel, pattern) for pattern in only)
    ]
    chosen = [
        kernel
        for kernel in asked
        if kernel.full_name in BASELINES or not any(_named(kernel, pattern) for pattern in skip)
    ]
    if only and len(chosen) < len(asked) and all(kernel.full_name in BASELINES for kernel in chosen):
        skipped = ", ".join(map(repr, skip))
        raise ValueError(f"--skip is {skipped}; accepted: what leaves one of --only {', '.join(map(repr, only))}")
    own = [kernel for kernel in chosen if "@" not in kernel.full_name and _is_searched(kernel)]
    chosen += _all_matched(own) if matched else []
    chosen += [find(f"{kernel.full_name}{BORROWED}") for kernel in own] if borrowed else []
    return list({kernel.full_name: kernel for kernel in chosen}.values())  # each once, however often it is named


def _all_matched(searched: Sequence[Kernel]) -> list[Kernel]:
    """Of each pair of twins among these, either with the config of the other."""
    named = {kernel.full_name: kernel for kernel in searched}
    pairs = ((kernel, named.get(counterpart(name) or "")) for name, kernel in named.items())
    return [find(f"{kernel.full_name}@{twin.language.value}") for kernel, twin in pairs if twin is not None]


def _named(kernel: Kernel, pattern: str) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for name in _names(kernel))


def _names(kernel: Kernel) -> tuple[str, ...]:
    language = kernel.language.value
    return kernel.full_name, f"{language}/{kernel.name}", kernel.full_name.partition("/")[2], kernel.name, language


def sits_out(kernel: Kernel, problem: Problem, device: torch.device) -> str | None:
    """Why the kernel cannot take the problem on this device, on any config, or None."""
    reason = environment_reason(kernel.language) if device.type == "cuda" else None
    return reason or kernel.supports(problem, None)


def environment_reason(language: Language) -> str | None:
    """Why no contender of this language can run on this machine, or None."""
    lacks: dict[Language, Callable[[], str | None]] = {
        language: partial(not_installed, package, language.value) for language, package in OPTIONAL.items()
    }
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        lacks |= {Language.TRITON: compilers.triton_lacks, Language.TILUS: compilers.tilus_lacks}
    if reason := not_importable().get(language) or lacks.get(language.compiler, lambda: None)():
        return reason
    return None if on_gpu or language in ON_CPU else "needs a CUDA device"


def availability(language: Language) -> str:
    """How contenders of this language run on this machine, or why they cannot: "runs in Triton's interpreter"."""
    return environment_reason(language) or f"runs {'on the GPU' if torch.cuda.is_available() else ON_CPU[language]}"
