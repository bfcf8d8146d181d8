"""Tuned tables and rows that contradict themselves, or were found for a former kernel, are told."""

import ast
import dataclasses
import hashlib
import json
import subprocess

import made_rows
import pytest
from msgspec import structs

from triton_vs_tilus.bench import compare, contenders, sources, workloads
from triton_vs_tilus.bench import tuned as command
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.rows import environment, queries
from triton_vs_tilus.bench.rows.journal import Journal
from triton_vs_tilus.bench.rows.row import SearchRecord
from triton_vs_tilus.bench.search import audit
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.w4a16 import W4A16Matmul

KERNEL = contenders.find("triton/atomic")
CONFIG = KERNEL.default_config(Matmul(16, 256, 7168))


def problem_of(tokens: int, **choices) -> Matmul:
    return Matmul(tokens, 256, 7168, **{"layout": Layout.NK, **choices})


def entry(problem: Matmul, **search) -> tuple[str, tuned.Entry]:
    return KERNEL.full_name, {"problem": problem.key, "config": dataclasses.asdict(CONFIG), "search": search}


def test_an_entry_of_a_former_kernel_is_stale_and_takes_part_as_before(tuned_tables):
    current = sources.source_hash(KERNEL)
    known = {16: {"source": current}, 32: {"source": "0123456789ab"}, 64: {}}
    tuned.write("a-gpu", [entry(problem_of(m), **search) for m, search in known.items()], shipped=True)
    picked = {m: contenders.pick(KERNEL, problem_of(m), "a-gpu") for m in (16, 32, 64, 128)}
    assert {config for config, _ in picked.values()} == {CONFIG}
    assert [source for _, source in picked.values()] == ["tuned", "stale", "stale", "nearest"]
    assert tuned.pick(KERNEL, problem_of(64), "a-gpu")[1] == "tuned"  # a launcher need not know
    told = {"tried": 4, "space": 9, "out_of_time": True, "us": 3.1, "seconds": 1.0, "build_seconds": 2.0}
    tuned.write("a-gpu", [entry(problem_of(16), source=current, **told)], shipped=True)
    found = {m: contenders.search_of(KERNEL, problem_of(m), "a-gpu") for m in (16, 32, 128)}
    assert found == {16: SearchRecord(**told), 32: None, 128: None}
    assert made_rows.row().not_searched is False
    assert structs.replace(made_rows.row(), search=found[16]).not_searched
    assert structs.replace(made_rows.row(), config_source="stale").not_searched


def test_the_source_is_the_code_of_what_the_kernel_computes_and_is_searched_by(monkeypatch, tmp_path):
    files = sources._used_by(sources.ROOT / "kernels_triton" / "decompose_k.py")
    names = {str(path.relative_to(sources.ROOT)) for path in files}
    assert {"kernels_triton/epilogue.py", "kernels_triton/band.py", "common/space.py", "common/kernel.py"} <= names
    assert not names & {"common/tuned.py", "common/checks.py", "kernels_triton/semaphore.py", "kernels_tilus/band.py"}
    vector, tile = (contenders.find(f"triton/decompose_k.{variant}") for variant in ("vector", "tile"))
    assert sources.source_hash(vector) == sources.source_hash(tile) != sources.source_hash(KERNEL)
    for number, text in enumerate(('"""Doc."""\nx = 1  # why\n', '"""Other."""\n\nx = 1\n', "x = 2\n")):
        (tmp_path / f"{number}.py").write_text(text)
    first, second, third = (sources._hash_of(tmp_path / f"{number}.py") for number in range(3))
    assert first == second != third


def test_a_latency_that_falls_as_tokens_grow_is_told():
    """By more than 3 %; of one kernel, on problems that differ in T alone."""
    times = {1: 5.0, 16: 10.0, 32: 9.69, 64: 9.71, 128: 20.0, 256: 19.5}
    latencies = [("triton/atomic", problem_of(m), us) for m, us in times.items()]
    (fall,) = audit.falls(latencies)
    assert (fall.fewer.m, fall.more.m) == (16, 32)
    said = "triton/atomic: 9.69 us on 32x256x7168-bf16-nk, 3.1% under the 10.00 us on 16x256x7168-bf16-nk; search"
    assert str(fall).startswith(said)
    others = [
        ("tilus/atomic", problem_of(256), 1.0),
        ("triton/atomic", problem_of(256, layout=Layout.KN), 1.0),
        ("triton/atomic", problem_of(256, epilogue=Epilogue.RELU), 1.0),
        ("triton/atomic", Matmul(256, 128, 7168, layout=Layout.NK), 1.0),
    ]
    assert audit.falls([*latencies, *others]) == [fall]
    assert audit.falls(latency for latency in latencies if latency[1].m != 16) == []


def test_a_weight_of_4_bits_falls_as_any_other():
    few, more = (W4A16Matmul(tokens, 512, 512) for tokens in (1, 16))
    times = [("triton/w4a16.atomic", few, 10.0), ("triton/w4a16.atomic", more, 8.0)]
    assert audit.falls(times) == [audit.Fall("triton/w4a16.atomic", few, 10.0, more, 8.0)]
    assert audit.falls([*times[:1], ("triton/w4a16.atomic", W4A16Matmul(16, 512, 512, group_size=64), 8.0)]) == []


def test_what_no_search_would_find_another_config_for_does_not_fall():
    config = dataclasses.asdict(CONFIG)
    given = ("@tilus", "@borrowed", "@s4", "@cluster")
    names = [KERNEL.full_name, *(f"{KERNEL.full_name}{end}" for end in given), "triton/or_reduce.control_reduce"]
    rows = [structs.replace(made_rows.row(name), config=config) for name in names]
    suspicious = structs.replace(made_rows.row("tilus/atomic"), config=config, status="suspicious")
    assert [name for name, *_ in audit.of_rows([*rows, suspicious])] == [KERNEL.full_name]


def test_a_kernel_without_a_twin_is_searched_alone_and_no_entry_waits_for_one(tuned_tables):
    name = "triton/w4a16.atomic_in_place"
    few, more = (W4A16Matmul(tokens, 512, 512) for tokens in (1, 16))
    assert contenders.find_or_none(contenders.counterpart(name)) is None
    (line,) = audit.searches([audit.Fall(name, few, 2.0, more, 1.0)])
    assert compare.parser().parse_args(line.split()[2:]).only == [name]
    tuned.write("a-gpu", [(name, {"problem": few.key, "config": {}})], shipped=True)
    assert audit.searched("a-gpu")[name] == audit.Searched(entries=1, unknown=1)


def test_what_searches_took_is_added_up_and_a_problem_of_both_languages_is_of_none_alone(tuned_tables):
    found = [entry(problem_of(tokens), seconds=2.0, build_seconds=30.0) for tokens in (1, 2)]
    tuned.write("a-gpu", [*found, ("tilus/atomic", found[1][1])], shipped=True)
    of = audit.searched("a-gpu")
    counts = dict(entries=2, unknown=2, alone=1, seconds=4.0, build_seconds=60.0)
    assert of[KERNEL.full_name] == audit.Searched(**counts) and of["tilus/atomic"].alone == 0


def test_what_fell_is_searched_again_by_one_command_a_pair():
    """Of both languages, lest one be searched for longer. It finds kernels and problems by the names that it gives."""
    few, more = problem_of(1), problem_of(16, layout=Layout.KN)
    names = ["triton/atomic", "triton/atomic", "tilus/atomic", "tilus/semaphore.fp32@s2", "triton/atomic@tilus"]
    fallen = [audit.Fall(name, few, 2.0, problem_of(64), 1.0) for name in names]
    commands = audit.searches([audit.Fall("triton/atomic", more, 2.0, problem_of(64), 1.0), *fallen])
    words = [command.split() for command in commands]
    assert [(line[:2], line[-2:]) for line in words] == [(["python", "bench/compare.py"], ["--tune", "full"])]
    asked = [compare.parser().parse_args(line[2:]) for line in words]
    assert [args.only for args in asked] == [["tilus/atomic", "triton/atomic"]]
    assert [[workloads.named(name)[1] for name in args.problem] for args in asked] == [[more, few]]


@pytest.fixture
def history(tuned_tables, monkeypatch, tmp_path):
    """A repository with 2 tables in its history, and a third that is not committed. Returns their fingerprints."""
    for module in (audit, environment):
        monkeypatch.setattr(module, "ROOT", tmp_path)

    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    git("init")
    prints = []
    for split, commit in enumerate((True, True, False)):
        tuned.write("made-up", [entry(problem_of(1), us=1.0 + split)], shipped=True)
        prints.append(tuned.fingerprint("made-up"))
        if commit:
            git("add", "shipped")
            git("commit", "-m", "a table")
    return prints


def test_the_text_of_code_is_that_of_one_python():
    """ast.dump differs between 3.11, 3.12 and 3.13; what was searched under one is not stale under another."""
    tree = ast.parse("def f(x=None, *, y): return g(x, [])\nclass A: pass")
    of_f = "FunctionDef(name='f', args=arguments(posonlyargs=[], args=[arg(arg='x')], kwonlyargs=[arg(arg='y')], "
    of_f += "kw_defaults=[None], defaults=[Constant(value=None)]), body=[Return(value=Call(func=Name(id='g', "
    of_f += "ctx=Load()), args=[Name(id='x', ctx=Load()), List(elts=[], ctx=Load())], keywords=[]))], "
    of_f += "decorator_list=[], type_params=[])"
    of_a = "ClassDef(name='A', bases=[], keywords=[], body=[Pass()], decorator_list=[], type_params=[])"
    assert sources._dump(tree) == f"Module(body=[{of_f}, {of_a}], type_ignores=[])"


def test_a_repository_around_the_package_is_not_its_own(history, tuned_tables, monkeypatch):
    """That of an application whose virtual environment lies in its checkout."""
    monkeypatch.delenv("SOURCE_REVISION", raising=False)
    assert str(environment._revision()).endswith("+")
    for module in (audit, environment):
        monkeypatch.setattr(module, "ROOT", tuned_tables)
    assert environment._revision() is None
    with pytest.raises(RuntimeError, match="git rev-list"):
        environment.git("rev-list", "--all")


def test_a_rows_table_is_found_in_git(history, tuned_tables):
    committed = audit.tables_in_git("made-up")
    assert committed == set(history[:2])
    assert hashlib.sha256((tuned_tables / "made-up.json").read_bytes()).hexdigest()[:12] == history[2]

    def row(fingerprint: str | None, git: str = "abc", contender: str = "triton/decompose_k.vector"):
        made = made_rows.row(contender)
        return structs.replace(made, environment=structs.replace(made.environment, tuned=fingerprint, git=git))

    good = [row(history[0]), row(None), row(history[2], contender="torch/mm")]
    bad = [row(history[2]), row(history[1], git="abc+")]
    assert audit.not_in_git([*good, *bad], committed) == bad


def test_a_table_is_found_with_that_of_its_stand_in(history, monkeypatch):
    monkeypatch.setitem(tuned.STAND_INS, "its-sister", "made-up")
    assert audit.tables_in_git("its-sister") == set(history[:2])  # it has entries of its own in no commit
    assert tuned.fingerprint("its-sister") == history[2]


def test_the_command_fails_on_a_table_that_contradicts_itself(history, tuned_tables, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(queries, "RESULTS", tmp_path / "results")
    current, whole = sources.source_hash(KERNEL), {"tried": 9, "space": 9, "out_of_time": False}
    found = [
        entry(problem_of(1), us=3.0, source=current, **whole),
        entry(problem_of(2), us=3.1, source=current, **whole | {"tried": 8}),
        entry(problem_of(4), us=3.2, source="a former one", **whole | {"out_of_time": True}),
        (KERNEL.full_name, {key: value for key, value in entry(problem_of(8))[1].items() if key != "search"}),
    ]
    tuned.write("made-up", found, shipped=True)
    assert audit.searched("made-up") == {
        KERNEL.full_name: audit.Searched(entries=4, whole=1, part=1, stale=1, unknown=1, out_of_time=1, alone=4)
    }
    assert run_command(command.main, []) == 0
    gone = {**entry(problem_of(1), us=9.0, source="of a kernel that there was", **whole)[1]}
    tuned.write("made-up", [("triton/gone", gone)], shipped=False)
    assert audit.searched("made-up")["triton/gone"] == audit.Searched(entries=1, unknown=1)  # nor is there a twin
    assert run_command(command.main, []) == 0
    tuned.write("made-up", [entry(problem_of(16), us=2.9, source=current, **whole)], shipped=True)
    assert run_command(command.main, []) == 1
    told = capsys.readouterr().out
    assert "made-up: triton/atomic: 2.90 us on 16x256x7168" in told
    problems = " ".join(f"--problem {problem_of(tokens).name}" for tokens in (1, 2, 4))
    assert f"--only triton/atomic {problems} --tune full" in told
    tuned.write("made-up", [entry(problem_of(16), us=3.3, source=current, **whole)], shipped=True)
    of_no_commit = made_rows.row("triton/decompose_k.vector")
    environment = structs.replace(of_no_commit.environment, device="NVIDIA Made-Up", tuned="0123456789ab")
    Journal(tmp_path / "rows.jsonl").append(structs.replace(of_no_commit, environment=environment))
    assert run_command(command.main, [str(tmp_path / "rows.jsonl")]) == 1
    assert "rows.jsonl: 1 of 1 rows have a table that is in no commit" in capsys.readouterr().out


def test_files_of_one_name_are_runs_of_their_own(tuned_tables, tmp_path, monkeypatch, capsys):
    """Times of two runs do not compare; and a fall is told of its own file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit, "tables_in_git", lambda slug: set())
    name = "triton/decompose_k.vector"
    times = {"a": {1: 8.0, 16: 9.0}, "b": {2: 7.0, 32: 7.5}}
    for folder, by_tokens in times.items():
        for tokens, us in by_tokens.items():
            made = made_rows.row(name, tokens, us)
            environment = structs.replace(made.environment, tuned=None)
            Journal(tmp_path / folder / "rows.jsonl").append(structs.replace(made, environment=environment))
    assert run_command(command.main, ["a/rows.jsonl", "b/rows.jsonl"]) == 0
    slower = structs.replace(made_rows.row(name, 1, 12.0), environment=environment)
    Journal(tmp_path / "a" / "rows.jsonl").append(slower)
    assert run_command(command.main, ["a/rows.jsonl", "b/rows.jsonl"]) == 1
    told = [line for line in capsys.readouterr().out.splitlines() if " under the " in line]
    assert len(told) == 1 and told[0].startswith(f"a/rows.jsonl: {name}: 9.00 us on 16x256x7168")


def test_the_shipped_entries_tell_what_is_known_of_their_searches():
    for path in tuned.SHIPPED.glob("*.json"):
        for name, entries in json.loads(path.read_text()).items():
            for item in entries:
                assert {"date", "device", "git"} <= item["search"].keys(), (name, item)
                assert item["search"].keys() <= tuned.Search.__annotations__.keys()
