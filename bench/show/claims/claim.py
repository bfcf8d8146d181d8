"""A claim: its source, its rule, and which rows test it."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import pandas as pd
from packaging.version import Version

from triton_vs_tilus.bench import workloads
from triton_vs_tilus.bench.rows.row import ProblemRecord
from triton_vs_tilus.bench.show.claims.evidence import NO_ROWS, NOT_TESTABLE, Evidence, Untested, named
from triton_vs_tilus.bench.show.claims.published import counted_by, missing, ours, recorded_by
from triton_vs_tilus.bench.show.claims.rules import CONFIRMED, CONTRADICTED, Finding, Rule

NOT_RECORDED = "not recorded yet"  # the source's own kernel, on its workload
FEW_ROWS = "too few rows"  # with searched configs, for less than half of the suite that the claim is about
VERDICTS = (CONFIRMED, CONTRADICTED, NOT_TESTABLE, NOT_RECORDED, FEW_ROWS, NO_ROWS)
DECIDED = (CONFIRMED, CONTRADICTED)
# Of one claim's findings on several devices, which is told: the first.
_TELLING = {CONFIRMED: 0, CONTRADICTED: 0, FEW_ROWS: 1, NOT_TESTABLE: 2, NOT_RECORDED: 3, NO_ROWS: 4}


@dataclass(frozen=True)
class Source:
    """setup: the device, versions and dtype that its figures are of, as far as it names them. gpu: part of the name of
    the device that its claims are judged on first; empty where it names none. not_here: why no row is of its versions;
    empty where it names none."""

    name: str
    url: str
    setup: str
    gpu: str = ""
    not_here: str = ""


@dataclass(frozen=True)
class Claim:
    """rule, and the rows that test it: those of the rule's contenders, in this workload (a pattern), on these problems.

    A claim of a source's own kernel is judged by the rows of that kernel as published; what the same rule says of ours
    is told beside it.

    where     the problems, as a condition of pandas' query on m, n, k and dtype; all where empty
    setup     what it was made of; its source's where empty
    there     what the source ran, where that is not what its name says
    gpus      parts of the names of the GPUs that the figures depend on; others tell figures, and no verdict
    triton    the beginning of the version of Triton that the figures depend on; likewise
    torch     the oldest version of torch that the figures depend on; likewise
    unlike    why rows from here tell figures, and no verdict, whatever made them
    note      what else a reader of the rule has to know
    """

    text: str
    source: Source
    rule: Rule
    workload: str = "*"
    where: str = ""
    setup: str = ""
    there: str = ""
    gpus: Sequence[str] = ()
    triton: str = ""
    torch: str = ""
    unlike: str = ""
    note: str = ""

    @property
    def condition(self) -> str:
        """Where the claim is confirmed, for a reader."""
        text = ", ".join(filter(None, [self.rule.text, self.note]))
        return f"{self._only}: {text}" if self._only else text

    @property
    def _only(self) -> str:
        """'on an A100', 'with Triton 3.4', 'with torch 2.12 or newer'"""
        *others, last = self.gpus or [""]
        gpus = f"on an {' or '.join(filter(None, [', '.join(others), last]))}" if self.gpus else ""
        triton = f"with Triton {self.triton}" if self.triton else ""
        torch = f"with torch {self.torch} or newer" if self.torch else ""
        return " ".join(filter(None, [gpus, triton, torch]))

    @property
    def made_of(self) -> str:
        """What the source ran, and on what."""
        return "; ".join(filter(None, [self.setup or self.source.setup, self.there]))

    @property
    def selection(self) -> str:
        """The rows that test it, for a reader."""
        if not self.rule.contenders:
            return ""
        every = dict.fromkeys([*self.rule.contenders, *ours(self.rule).contenders])
        names = ", ".join(f"`{pattern}`" for pattern in every)
        asked = {"rows": "", "launches": ", counters", "stages": ", stages"}[self.rule.frame]
        return f"{'any' if self.workload == '*' else self.workload}{asked}: {names}"

    def finding(self, evidence: Evidence) -> Finding:
        """The figures and the verdict. A verdict on a suite takes half of its problems, with searched configs; one on
        figures that depend on a GPU or a version takes rows of these, and other rows give only figures. Of
        several devices with a verdict it is that of the source's, or of the one with the most rows; the others' stands
        beside it."""
        found, rule = self._told(self.rule, evidence), ours(self.rule)
        if rule == self.rule:
            return found
        own = self._told(rule, evidence)
        in_place = set(rule.contenders) - set(self.rule.contenders)
        if own.verdict == NO_ROWS or named(self._chosen(rule, evidence), *in_place).empty:
            return found
        told = own.measured.removeprefix(f"{found.why}; ")
        return replace(found, measured=f"{found.measured}; ours: {told} ({own.verdict})")

    def _told(self, rule: Rule, evidence: Evidence) -> Finding:
        """Of several devices, with their names."""
        devices = evidence.asked(rule.frame)["device"].unique()
        if not rule.contenders or len(devices) < 2:
            return self._finding(rule, evidence)

        def telling(pair: tuple[str, Finding]) -> tuple[int, bool, bool, bool, int]:
            device, finding = pair
            is_there = bool(self.source.gpu) and self.source.gpu in device
            rows = self._chosen(rule, evidence.by_device[device])
            empty, few = not finding.figure, self._is_few(finding)
            return _TELLING[finding.verdict], empty, few, not is_there, -len(rows)

        ranked = sorted(((each, self._finding(rule, evidence.by_device[each])) for each in devices), key=telling)
        first = ranked[0][1]
        if first.verdict not in (*DECIDED, FEW_ROWS):
            return first
        told = [
            f"{device.removeprefix('NVIDIA ')}: {found.measured}{f' ({found.verdict})' * (found is not first)}"
            for device, found in ranked
            if found is first or found.verdict in DECIDED
        ]
        return replace(first, measured="; ".join(told))

    def _finding(self, rule: Rule, evidence: Evidence) -> Finding:
        chosen = self._chosen(rule, evidence)
        if lacking := missing(chosen, rule.contenders):
            return Finding(f"`{self._recorded_by(lacking)}`", NOT_RECORDED)
        there = chosen[self._as_there(chosen)]
        absent = ": ".join(filter(None, [f"no rows {self._only}", self.source.not_here]))
        why = self.unlike or (absent if there.empty and self._only else "")
        try:
            finding = self._with_shapes(rule.finding(chosen if there.empty else there))
        except Untested as untested:
            return Finding(why, NOT_TESTABLE) if why else Finding(str(untested), untested.verdict)
        if why:
            return self._told_alone(why, chosen, finding, rule.contenders)
        return replace(finding, verdict=FEW_ROWS) if self._is_few(finding) else finding

    def _is_few(self, finding: Finding) -> bool:
        return finding.problems is not None and 2 * finding.problems < self.asked

    def _told_alone(self, why: str, rows: pd.DataFrame, finding: Finding, contenders: Sequence[str]) -> Finding:
        """The figures of these rows, and why they are no verdict. Versions are told under which all contenders ran: the
        only the baseline has rows under others."""
        name = "torch" if self.torch else "Triton"
        made_with = [
            dict.fromkeys(zip(alike["device"], alike[name.lower()], strict=True))
            for alike in (rows, *(named(rows, contender) for contender in contenders))
        ]
        versions = [key for key in made_with[0] if all(key in of_one for of_one in made_with)] or made_with[0]
        here = ", ".join(f"{device}, {name} {version}" for device, version in versions)
        return replace(finding, measured=f"{why}; {here}: {finding.measured}", verdict=NOT_TESTABLE, why=why)

    def _with_shapes(self, finding: Finding) -> Finding:
        """Says where two contenders were compared on fewer shapes than the claim is about."""
        if finding.compared is None or finding.compared >= self.asked:
            return finding
        return replace(finding, measured=f"{finding.measured}; {finding.compared} of the {self.asked} shapes recorded")

    def _chosen(self, rule: Rule, evidence: Evidence) -> pd.DataFrame:
        return named(self._of_problems(evidence.asked(rule.frame)), *rule.contenders)

    def _recorded_by(self, contenders: Sequence[str]) -> str:
        if self.rule.frame == "launches":
            return counted_by(contenders, self._of_problems(_suites())["problem"])
        return recorded_by(contenders, self.workload)

    def _as_there(self, frame: pd.DataFrame) -> pd.Series:
        """Of each row, whether it was made on what the claim's figures depend on."""
        made_with = zip(frame["device"], frame["triton"], frame["torch"], strict=True)
        alike = [
            (not self.gpus or any(gpu in device for gpu in self.gpus))
            and str(triton).startswith(self.triton)
            and (not self.torch or (torch is not None and Version(Version(torch).base_version) >= Version(self.torch)))
            for device, triton, torch in made_with
        ]
        return pd.Series(alike, index=frame.index, dtype=bool)

    def _of_problems(self, frame: pd.DataFrame) -> pd.DataFrame:
        of_workload = frame[frame["workload"].isin(fnmatch.filter(frame["workload"].unique(), self.workload))]
        return of_workload.query(self.where) if self.where else of_workload

    @property
    def asked(self) -> int:
        """How many problems of its suites it is about; 0 for a workload that is no suite."""
        return len(self._of_problems(_suites()))


@lru_cache(maxsize=1)
def _suites() -> pd.DataFrame:
    """Every problem of every suite."""
    problems = [(suite.name, problem) for suite in workloads.SUITES for _, problem in workloads.problems(suite.name)]
    records = [(name, ProblemRecord.from_problem(problem)) for name, problem in problems]
    lines = [(name, record.name, record.m, record.n, record.k, record.dtype) for name, record in records]
    return pd.DataFrame(lines, columns=["workload", "problem", "m", "n", "k", "dtype"])
