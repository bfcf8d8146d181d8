"""What the commands share: names, exit codes, what is told where a command ends early."""

import importlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from said import on_stderr

from triton_vs_tilus.bench import ROOT, cli
from triton_vs_tilus.bench.cli import ExitCode, UsageError, run_command
from triton_vs_tilus.bench.rows.row import TIMINGS
from triton_vs_tilus.bench.search.race import BUDGETS
from triton_vs_tilus.bench.show import tables
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import DTYPES, Layout


def test_its_names_are_those_of_the_project():
    assert set(cli.LAYOUTS) == {layout.value for layout in Layout}
    assert set(cli.DTYPES) == set(DTYPES)
    assert set(cli.EPILOGUES) == {epilogue.value for epilogue in Epilogue}
    assert set(cli.TUNE) == {"off", *BUDGETS}
    assert {*cli.CLOCKS, "host"} == set(TIMINGS)


def interrupted(arguments):
    raise KeyboardInterrupt("the journal is F")


def terminated(arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()


def refused(arguments):
    raise UsageError("no such thing")


def fine(arguments):
    return ExitCode.OK


@pytest.mark.parametrize("by_rich", [False, True])
def test_a_reader_that_has_seen_enough_ends_the_command_without_a_word(by_rich, monkeypatch, capfd):
    def tells(arguments):
        tell = tables.console().print if by_rich else print
        tell("a line that nobody reads")
        return ExitCode.OK

    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert run_command(tells, []) == ExitCode.OUTPUT_CLOSED
        closed.flush()
    monkeypatch.undo()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("main", "code", "line"),
    [
        (interrupted, 130, "test_cli.py: interrupted: the journal is F\n"),
        (terminated, 143, "test_cli.py: terminated\n"),
        (refused, 2, "test_cli.py: error: no such thing\n"),
        (fine, 0, ""),
    ],
)
def test_a_command_ends_with_one_line_and_its_code(capsys, main, code, line):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert run_command(main, []) == code
    assert capsys.readouterr().err == line
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_comes_twice_leaves_what_the_first_one_ends_alone(number, code):
    ended = []

    def ends(arguments):
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            os.kill(os.getpid(), number)
            ended.append(True)

    assert run_command(ends, []) == code
    assert ended


def test_a_signal_that_comes_later_ends_what_takes_long_to_end(monkeypatch):
    monkeypatch.setattr(cli, "AGAIN_S", 0.0)
    ended = []

    def hangs(arguments):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            ended.append(True)

    assert run_command(hangs, []) == 143
    assert not ended


COMMANDS = sorted(path.stem for path in ROOT.glob("bench/*.py") if "Parser(__doc__" in path.read_text())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_not_installed_says_how_to_install_it(command):
    said = not_installed(ROOT / "bench" / f"{command}.py")
    told, _, instead = said.rpartition(": ")
    start = f"{command}.py: error: the package triton_vs_tilus is not installed in "
    assert told.startswith(start)
    there = ROOT / ".venv"
    if (there / "bin" / "python").exists() and Path(told.removeprefix(start)) != there:
        assert instead == f"{there}/bin/python {ROOT}/bench/{command}.py\n"
    else:
        assert instead.endswith(f" -m pip install --constraint {ROOT}/constraints.txt --editable {ROOT}\n")


def test_who_installed_by_readme_and_takes_another_python_is_told_which_has_it(tmp_path):
    (tmp_path / "bench").mkdir()
    for name in ("script.py", "answer.py"):
        shutil.copy(ROOT / "bench" / name, tmp_path / "bench")
    script = tmp_path / "bench" / "answer.py"
    said = not_installed(script, "16x256x7168")
    install = f"{sys.executable} -m pip install --constraint {tmp_path}/constraints.txt --editable {tmp_path}"
    assert said.endswith(f": {install}\n")
    there = tmp_path / ".venv" / "bin" / "python"
    there.parent.mkdir(parents=True)
    there.touch()
    assert not_installed(script, "16x256x7168").endswith(f": {there} {script} 16x256x7168\n")


def not_installed(script: Path, *words: str) -> str:
    """What it says without site-packages, where there is no triton_vs_tilus."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    made = subprocess.run([sys.executable, "-S", script, *words], capture_output=True, text=True, env=environment)
    assert made.returncode == 2 and made.stdout == "" and made.stderr.count("\n") == 1
    return made.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_run_as_a_module_too(command, tmp_path):
    """As that of a wheel, from a folder that is not the checkout."""
    words = [sys.executable, "-m", f"triton_vs_tilus.bench.{command}", "--help"]
    made = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert made.returncode == 0 and made.stdout.startswith("usage: "), made.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_waits_for_neither_torch_nor_a_kernel(command):
    words = [sys.executable, "-X", "importtime", str(ROOT / "bench" / f"{command}.py"), "--help"]
    made = subprocess.run(words, capture_output=True, text=True)
    assert made.returncode == 0 and made.stdout.startswith("usage: ")
    imported = {line.rpartition("|")[2].strip() for line in made.stderr.splitlines()}
    assert "argparse" in imported and not imported & {"torch", "triton", "tilus", "rich", "pandas"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_keeps_the_lines_of_its_examples(command):
    made = importlib.import_module(f"triton_vs_tilus.bench.{command}")
    examples = [line.strip() for line in made.__doc__.splitlines() if line.strip().startswith(("python ", "torchrun "))]
    shown = [line.strip() for line in made.parser().format_help().splitlines()]
    assert not set(examples) - set(shown)


@pytest.mark.parametrize(("command", "folder"), [("record", "examples"), ("site", "notes"), ("dispatch", "notes")])
def test_what_a_wheel_has_no_files_for_is_one_error(command, folder, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    main = importlib.import_module(f"triton_vs_tilus.bench.{command}").main
    assert run_command(main, []) == ExitCode.USAGE
    told = " ".join(on_stderr(capsys).split())
    assert told == f"{command}.py: error: there is no {folder} in {tmp_path}; accepted: a checkout of the project"


def test_the_exit_codes_are_those_of_the_help():
    codes = {int(line.split()[0]) for line in cli.EXIT_CODES.splitlines()[1:]}
    assert codes == set(ExitCode)


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_narrow(command, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    made = importlib.import_module(f"triton_vs_tilus.bench.{command}").parser()
    assert max(map(len, made.format_help().splitlines())) <= cli.WIDTH
    assert max(map(len, made.format_usage().splitlines())) <= min(int(columns), cli.WIDTH)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("compare", "--shape 1x64x1024 --only triton/data_parallel"),
        ("tuned", ""),
        ("resources", "--only triton/sliced_k.fma"),
        ("prebuild", "--shape 1x64x1024 --only triton/atomic --tune off --into built"),
        ("record", "--list or_reduce-int64"),
    ],
)
def test_a_broken_tuned_table_is_a_usage_error(command, words, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(tuned.DATA_VARIABLE, str(tmp_path))
    slugs = {*tuned.devices(), tuned.slug_of(torch.device("cuda" if torch.cuda.is_available() else "cpu"))}
    (tmp_path / "tuned").mkdir()
    for slug in slugs:
        (tmp_path / "tuned" / f"{slug}.json").write_text("[]")
    tuned.refresh()
    main = importlib.import_module(f"triton_vs_tilus.bench.{command}").main
    try:
        assert run_command(main, words.split()) == ExitCode.USAGE
    finally:
        monkeypatch.undo()
        tuned.refresh()
    told = on_stderr(capsys)
    assert f"{command}.py: error: {tmp_path / 'tuned'}" in told and ".json is not a table of tuned configs: " in told


def test_what_is_refused_is_told_in_narrow_lines(capsys):
    def refuses(arguments):
        raise UsageError("--only is 'x'; accepted: " + ", ".join(f"kernel_{index}" for index in range(40)))

    assert run_command(refuses, []) == ExitCode.USAGE
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1 and max(map(len, lines)) <= cli.WIDTH


def test_a_name_that_is_unknown_is_answered_by_the_nearest_of_many():
    lists = "names that `python bench/compare.py --list` lists"
    assert cli.named_by("bench/compare.py --list", "rooter", ["router", "chain"]) == f"{lists}, the nearest: router"
    assert cli.named_by("bench/compare.py --list", "nope", ["router", "chain"]) == lists


def test_a_wheel_has_its_commands_run_as_modules(monkeypatch, capsys, tmp_path):
    """Where an error, or a command's help, names one by its path in a checkout."""

    def refuses(arguments):
        raise UsageError(f"accepted: {cli.named_by('bench/compare.py --list', 'nope', [])}, from bench/workloads.py")

    monkeypatch.setattr(cli, "ROOT", tmp_path)
    assert run_command(refuses, []) == ExitCode.USAGE
    lists = "names that `python -m triton_vs_tilus.bench.compare --list` lists, from bench/workloads.py"
    assert on_stderr(capsys) == f"test_cli.py: error: accepted: {lists}"
    shown = importlib.import_module("triton_vs_tilus.bench.compare").parser().format_help()
    assert "python -m triton_vs_tilus.bench.compare --workload router\n" in shown
    assert "torchrun --nproc-per-node=4 -m triton_vs_tilus.bench.compare --workload router\n" in shown


def test_a_value_is_given_once_and_what_is_repeatable_as_often_as_wanted():
    made = cli.Parser("A command.")
    made.add_argument("--layout", choices=("nk", "kn"), default="nk")
    made.add_argument("--only", action="append", default=[])
    args = made.parse_args(["--only", "a", "--layout", "kn", "--only", "b"])
    assert (args.layout, args.only) == ("kn", ["a", "b"])
    with pytest.raises(UsageError, match="--layout is given twice; accepted: once"):
        made.parse_args(["--layout", "kn", "--layout", "nk"])
