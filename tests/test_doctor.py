"""What the doctor says of packages, tools and languages, with what is installed made up."""

from importlib import metadata

import pytest
import torch

from triton_vs_tilus.bench import compare, contenders
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.diagnostics import doctor


@pytest.fixture
def installed(monkeypatch):
    """The versions found: 1.0 but for those set here."""
    found: dict[str, str | None] = {}
    monkeypatch.setattr(doctor, "version", lambda package: found.get(package, "1.0"))
    return found


def state_of(name: str, lines) -> str:
    return next(line.state for line in lines if line.what == name)


def test_the_screen_tells_what_is_there_and_what_is_not(monkeypatch, installed, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # as the command sets it without a GPU; here for this test alone
    monkeypatch.setattr(doctor.shutil, "which", lambda tool: None)
    installed |= {"tilus": None, "apache-tvm-ffi": "0.1.13", "torch": "2.12.0", "cuda-bindings": "13.1.0"}
    assert run_command(compare.main, ["--doctor"]) == 0
    shown = capsys.readouterr().out.splitlines()
    lines = {line.split()[0]: line for line in shown if line.strip()}
    assert lines["torch"].split()[2:] == ["runs", "on", "the", "CPU"]
    assert "missing: wants ==0.2.0" in "".join(line for line in shown if line.startswith("tilus "))
    assert "0.1.13" in lines["apache-tvm-ffi"] and "wants <0.1.13,>=0.1.9" in lines["apache-tvm-ffi"]
    assert "missing: no CUDA device" in lines["GPU"]
    assert "missing: nvcc compiles with it" in lines["g++"]
    assert "missing: tilus runs it as it is imported" in lines["git"]
    assert "runs in Triton's interpreter" in lines["triton"]
    languages = {kernel.language for kernel in contenders.all_contenders()}  # a line each
    assert len(shown) - len(languages) <= 38 and max(len(line.rstrip()) for line in shown) <= 104


def test_packages_are_held_against_their_constraints(installed):
    installed |= {"tilus": None, "torch": "2.12.0", "triton": "3.5"}
    lines = list(doctor.packages())
    assert state_of("torch", lines) == "ok"
    assert state_of("tilus", lines) == "missing: wants ==0.2.0"
    assert state_of("triton", lines) == "wants >=3.6"
    assert [line.fine for line in lines if line.what in ("torch", "tilus", "triton")] == [True, False, False]


def test_every_requirement_of_the_project_is_read():
    names = [requirement.name for requirement in doctor.requirements()[""]]
    assert {"torch", "triton", "tilus", "apache-tvm-ffi", "cuda-bindings", "rich", "pandas"} <= set(names)
    assert "helion" not in names and "pytest" not in names
    assert [requirement.name for requirement in doctor.requirements()["helion"]] == ["helion"]


@pytest.mark.parametrize(("found", "told"), [("1.4", ["wants <1.3,>=1.2 (extra helion)"]), ("1.2.1", []), (None, [])])
def test_an_extra_is_told_of_where_its_version_does_not_fit(installed, found, told):
    installed["helion"] = found
    assert [line.state for line in doctor.packages() if line.what == "helion"] == told


def test_a_marker_decides_whether_a_requirement_holds(monkeypatch):
    texts = ["old; python_version < '3'", "new; python_version > '3'", "more; extra == 'b' and python_version > '3'"]
    monkeypatch.setattr(metadata, "requires", lambda package: texts)
    monkeypatch.setattr(doctor.metadata, "metadata", lambda package: Extras())
    assert {extra: [one.name for one in found] for extra, found in doctor.requirements().items()} == {
        "": ["new"],
        "a": [],
        "b": ["more"],
    }


class Extras:
    def get_all(self, field: str) -> list[str]:
        assert field == "Provides-Extra"
        return ["a", "b"]
