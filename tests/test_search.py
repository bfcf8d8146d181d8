"""The search with made-up kernels and times: its choice of configs, its cache's key and the tables it writes."""

import dataclasses
import itertools
import json
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import made_rows
import pytest
import torch
from msgspec import structs

from triton_vs_tilus.bench import workloads
from triton_vs_tilus.bench.contenders import all_contenders, find
from triton_vs_tilus.bench.measure import clock, numbers
from triton_vs_tilus.bench.measure.clock import Arguments, NotTimed, Timed
from triton_vs_tilus.bench.measure.process import NO_ANSWER, Child, Died
from triton_vs_tilus.bench.rows.environment import environment
from triton_vs_tilus.bench.rows.row import EnvironmentRecord, ProblemRecord, SearchRecord
from triton_vs_tilus.bench.search import build, cache, search
from triton_vs_tilus.bench.search.build import builders
from triton_vs_tilus.bench.search.race import (
    BUDGETS,
    CONFIRMING_ROUNDS,
    FINALISTS,
    FIRST_ROUNDS,
    Budget,
    Lost,
    Race,
    SearchResult,
)
from triton_vs_tilus.bench.search.space import first_tries, neighbours, sample, siblings_of, tries
from triton_vs_tilus.bench.search.table import write_table
from triton_vs_tilus.bench.show import progress
from triton_vs_tilus.bench.sources import source_hash
from triton_vs_tilus.common import accuracy, tuned
from triton_vs_tilus.common.kernel import GroupedConfig, Kernel, Language, MatmulConfig, Space
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import point_of, splits, tiles

PROBLEM = Matmul(64, 256, 7168, layout=Layout.NK)
LISTED = [problem for suite in workloads.SUITES for problem in suite.problems(None, workloads.Asked())]
OF_OP = {problem.op: problem for problem in (*LISTED, PROBLEM)}  # any problem of each operation
AMPLE = Budget(configs=100, seconds=1e9)
SPACE = [MatmulConfig(16, 16, 32, split, warps, 3) for split in range(1, 21) for warps in (1, 2, 4, 8)]


def made_up(name: str = "made_up", space=SPACE) -> Kernel:
    return Kernel(
        name=name,
        variant="",
        language=Language.TRITON,
        protocol=Protocol.PARALLEL,
        launch=made_up,
        config_type=MatmulConfig,
        space=lambda problem: Space(tuple(space)),
        default_config=lambda problem: MatmulConfig(64, 64, 64, 1, 4, 4),
        build=None,
        supports=lambda problem, config: "too many splits" if config and config.split_k > 100 else None,
        deterministic=True,
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: 0,
        launches=1,
    )


def time_of(config: MatmulConfig) -> float:
    return 10 + abs(config.split_k - 7) + config.num_warps / 10


def times_of(configs, rounds) -> list[float]:
    return [time_of(config) for config in configs]


def result_of(check=lambda config: None, timing=times_of, not_built=None, budget=AMPLE, **clock) -> SearchResult:
    race = Race(budget, check, timing, **clock)
    race.enter(SPACE, not_built or {})
    return race.confirmed()


def test_stages_find_the_fastest_and_confirm_it():
    taken = []

    def timing(configs, rounds):
        taken.append((len(configs), rounds))
        return [time_of(config) for config in configs]

    found = result_of(timing=timing)
    assert found.config == MatmulConfig(16, 16, 32, 7, 1, 3) and found.confirmed_us == time_of(found.config)
    assert taken == [(80, 3), (26, 6), (8, 12), (4, 24), (1, CONFIRMING_ROUNDS)]
    assert taken[-2][0] <= FINALISTS
    assert (found.tried, found.failed, found.out_of_time) == (80, {}, False)


def test_failures_cost_no_more_than_themselves():
    broken, wrong, deadly, fragile = SPACE[24:28]  # around the fastest
    assert min(SPACE, key=time_of) == broken

    def check(config):
        assert config != broken, "not built, so not to be run"
        return "wrong" if config == wrong else None

    def timing(configs, rounds):
        for config in configs:
            if config == deadly or (config == fragile and rounds > 3):
                raise Lost(config, "died")
        return [time_of(config) for config in configs]

    found = result_of(check, timing, {broken: "ptxas"})
    assert found.config == min(set(SPACE) - {broken, wrong, deadly, fragile}, key=time_of)
    reasons = {broken: "ptxas", wrong: "wrong", deadly: "died", fragile: "died"}
    assert found.failed == {str(config): reason for config, reason in reasons.items()}


def test_where_none_passes_there_is_none():
    found = result_of(lambda config: "wrong", lambda configs, rounds: [])
    assert found.config is None and len(found.failed) == len(SPACE) and "none passed" in str(found)


def test_time_is_kept_to_and_told():
    """A second passes each time that the clock is looked at: 5 of the first 4 configs, 6 more of the 5 after them."""
    seconds, taken = itertools.count(), []

    def timing(configs, rounds):
        taken.append((len(configs), rounds))
        return times_of(configs, rounds)

    race = Race(Budget(80, 10), lambda config: None, timing, SPACE, lambda: next(seconds))
    race.enter(SPACE[:4], {})
    assert (race.result.seconds, race.result.out_of_time) == (5, False)
    race.enter(SPACE[4:], {})
    assert taken == [(4, FIRST_ROUNDS), (9, FIRST_ROUNDS)]
    found = race.confirmed()
    assert found.out_of_time and (found.tried, found.untried, found.seconds) == (9, len(SPACE) - 9, 14)
    assert found.config is not None and "stopped by time" in str(found)


def test_a_search_that_came_to_its_end_was_not_ended_by_time():
    seconds = [0.0]

    def timing(configs, rounds):
        seconds[0] += 20
        return times_of(configs, rounds)

    race = Race(Budget(80, 10), lambda config: None, timing, SPACE[:FINALISTS], lambda: seconds[0])
    race.enter(SPACE[:FINALISTS], {})
    assert (race.result.seconds, race.result.out_of_time) == (20, False)
    assert race.late() and race.result.out_of_time  # had there been more to do


def test_a_winner_that_does_not_hold_is_passed_over():
    def timing(configs, rounds):
        if rounds == CONFIRMING_ROUNDS and configs[0].num_warps == 1:
            raise Lost(configs[0], "died")
        return [time_of(config) for config in configs]

    found = result_of(timing=timing)
    assert found.config == MatmulConfig(16, 16, 32, 7, 2, 3)


def test_neighbours_are_those_that_differ_least_from_the_leaders():
    first, second = MatmulConfig(16, 16, 32, 7, 1, 3), MatmulConfig(16, 16, 32, 20, 8, 3)
    entered = {first, second, dataclasses.replace(first, split_k=8)}
    near = neighbours(made_up(), PROBLEM, [first, second], entered, 6)
    assert [(config.split_k, config.num_warps) for config in near] == [
        (6, 1),
        (9, 1),
        (5, 1),
        (10, 1),
        (11, 1),
        (12, 1),
    ]
    every = neighbours(made_up(), PROBLEM, [first, second], entered, 1000)
    assert set(every) == set(SPACE) - entered
    assert every.index(dataclasses.replace(second, split_k=19)) < every.index(
        dataclasses.replace(first, split_k=6, num_warps=2)
    )
    assert neighbours(made_up(), PROBLEM, [], entered, 6) == []


def test_of_another_kernels_leader_the_common_fields_count():
    @dataclasses.dataclass(frozen=True)
    class Theirs:
        split_k: int
        num_warps: int
        engine: str

    near = neighbours(made_up(), PROBLEM, [Theirs(12, 4, "wgmma")], set(), 3)
    assert [(config.split_k, config.num_warps) for config in near] == [(12, 4), (13, 4), (11, 4)]


def test_those_who_enter_later_compete_with_the_leaders():
    fastest, *others = sorted(SPACE, key=time_of)
    race = Race(AMPLE, lambda config: "wrong" if config == others[-1] else None, times_of)
    race.enter(others[10:], {})
    assert race.leaders == others[10 : 10 + FINALISTS] and race.result.config is None
    race.enter([others[-2], fastest, others[5]], {others[5]: "ptxas"})
    assert race.leaders[:2] == [fastest, others[10]] and race.entered == {*others[10:], fastest, others[5]}
    found = race.confirmed()
    assert (found.config, found.confirmed_us) == (fastest, time_of(fastest))
    assert found.failed == {str(others[-1]): "wrong", str(others[5]): "ptxas"}
    assert found.tried == len(others[10:]) + 3


def test_leaders_stand_where_nobody_else_enters():
    timed = []
    race = Race(AMPLE, lambda config: None, lambda configs, rounds: timed.append(rounds) or times_of(configs, rounds))
    race.enter(SPACE, {})
    leaders, turns = list(race.leaders), len(timed)
    race.enter([], {})
    assert race.leaders == leaders and len(timed) == turns


@pytest.fixture
def building(tuned_tables, tmp_path, monkeypatch):
    """All is built at once: what at each stage, by kernel."""

    def built(problem, chosen, *_):
        stages.append(dict(chosen))
        return {name: {} for name in chosen}, dict.fromkeys(chosen, 1.5)

    stages = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(search, "build_all", built)
    return stages


@pytest.fixture
def in_process(building, monkeypatch):
    """tune without a device, where every config is right: what is built at each stage, by kernel."""
    monkeypatch.setattr(search._Trial, "check", lambda trial, config: None)
    return building


HERE = EnvironmentRecord(device="none")


class InProcess:
    """Stands for a Child: it is on a device, and does nothing."""

    deadline_s = 1

    def call(self, *_):
        return None


def tuned_here(*kernels, child=None) -> dict[str, SearchResult]:
    child = child or InProcess()
    with builders(1) as children:
        how = {"child": child, "builders": children, "device": torch.device("cuda"), "versions": HERE}
        return search.tune(PROBLEM, kernels, "quick", **how)


def test_a_leader_of_the_other_language_is_matched_first():
    """Fed and reduced alike, whatever the fields that say so."""
    problem = Matmul(512, 256, 7168, layout=Layout.NK)
    here, there = find("triton/decompose_k.vector_pdl"), find("tilus/decompose_k.vector_pdl")
    leader = next(c for c in there.configs(problem) if (c.engine, c.reducer) == ("wgmma", (512, 4)))
    nearest, *others = neighbours(here, problem, [leader], set(), 3)
    assert point_of(nearest) == point_of(leader)
    wanted = point_of(leader).items()
    assert all(len(wanted - point_of(config).items()) == 1 for config in others)


def test_a_part_of_the_configs_is_kept_for_the_leaders_neighbours(in_process, monkeypatch):
    monkeypatch.setattr(search._Trial, "time", lambda trial, configs, rounds: times_of(configs, rounds))
    found = tuned_here(made_up())["triton/made_up"]
    sampled, near = (chosen["triton/made_up"] for chosen in in_process)
    assert (len(sampled), len(near), found.tried, found.build_seconds) == (48, 16, 64, 3.0)
    leader = min(sampled, key=time_of)
    assert near == neighbours(made_up(), PROBLEM, sorted(sampled, key=time_of)[:FINALISTS], {*sampled}, 16)
    assert found.config == min([*sampled, *near], key=time_of) and time_of(found.config) < time_of(leader)


def test_what_leads_in_one_language_is_tried_in_the_other(in_process, monkeypatch):
    def time(trial, configs, rounds):
        fastest = 7 if trial.name.startswith("triton") else 14
        return [10 + abs(config.split_k - fastest) + config.num_warps / 10 for config in configs]

    here, there = made_up(), dataclasses.replace(made_up(space=SPACE[::-1]), language=Language.TILUS)
    monkeypatch.setattr(search._Trial, "time", time)
    tuned_here(here, there)
    sampled, near = in_process
    for kernel, twin, fastest in ((here, there, 14), (there, here, 7)):
        leader = min(sampled[twin.full_name], key=lambda config: (abs(config.split_k - fastest), config.num_warps))
        assert leader in {*sampled[kernel.full_name], *near[kernel.full_name]}


def check_what_led_is_tried_too(kernel, other, in_process, tuned_tables, monkeypatch):
    """What this device's table has of another kernel, by a search of `kernel`."""
    known = other.configs(PROBLEM)[-1]
    entry = {"problem": PROBLEM.key, "config": dataclasses.asdict(known)}
    (tuned_tables / "none.json").write_text(json.dumps({other.full_name: [entry]}))
    monkeypatch.setattr(search._Trial, "time", lambda trial, configs, rounds: [float(c.block_k) for c in configs])
    tuned_here(kernel)
    sampled, near = (set(chosen[kernel.full_name]) for chosen in in_process)
    assert near.issuperset(neighbours(kernel, PROBLEM, [known], sampled, 2))


def test_what_led_in_the_other_language_before_is_tried_too(in_process, tuned_tables, monkeypatch):
    check_what_led_is_tried_too(find("tilus/atomic"), find("triton/atomic"), in_process, tuned_tables, monkeypatch)


def test_what_leads_under_another_protocol_is_tried_too(in_process, tuned_tables, monkeypatch):
    """Of the same language: the same tile and engine, where the space has them."""
    kernel, other = find("tilus/atomic"), find("tilus/last_arriver")
    assert other.full_name in siblings_of(kernel) and "triton/last_arriver" not in siblings_of(kernel)
    check_what_led_is_tried_too(kernel, other, in_process, tuned_tables, monkeypatch)


def row(contender: str, problem: Matmul, config: dict, source: str = "search", **values):
    values |= {"problem": ProblemRecord.from_problem(problem), "config": config, "config_source": source}
    if source == "search":
        values["search"] = SearchRecord(tried=24, space=582, out_of_time=False, us=7.5, seconds=9.0, build_seconds=80.0)
    return structs.replace(made_rows.row(contender), **values)


def test_the_choice_holds_the_known_and_is_the_same_every_time(tuned_tables):
    known = MatmulConfig(32, 32, 64, 3, 4, 2)
    other, impossible = dataclasses.replace(known, split_k=5), dataclasses.replace(known, split_k=500)
    entries = [
        {
            "problem": {"m": m, "n": 256, "k": 7168, "dtype": "bf16", "layout": "nk"},
            "config": dataclasses.asdict(config),
        }
        for m, config in ((64, known), (1, other), (2, impossible))
    ]
    (tuned_tables / "made-up.json").write_text(json.dumps({"triton/made_up": entries}))
    chosen = sample(made_up(), PROBLEM, 12, "made-up")
    assert chosen[:3] == [MatmulConfig(64, 64, 64, 1, 4, 4), known, other]
    assert len(chosen) == len(set(chosen)) == 12 and impossible not in chosen
    assert chosen == sample(made_up(), PROBLEM, 12, "made-up")
    few = sample(made_up(), PROBLEM, 4, "made-up")
    assert few[:2] == chosen[:2] and other not in few and len(few) == 4  # half of them known


def test_what_another_gpus_search_chose_for_this_problem_is_tried(tuned_tables):
    there, near = MatmulConfig(32, 32, 64, 3, 4, 2), MatmulConfig(32, 32, 64, 5, 4, 2)
    of = {"n": 256, "k": 7168, "dtype": "bf16", "layout": "nk"}

    def written(tokens: int, config: MatmulConfig) -> None:
        entry = {"problem": {"m": tokens, **of}, "config": dataclasses.asdict(config)}
        (tuned_tables / "another.json").write_text(json.dumps({"triton/made_up": [entry]}))
        tuned.refresh()

    written(PROBLEM.m, there)
    assert sample(made_up(), PROBLEM, 12, "made-up")[:2] == [MatmulConfig(64, 64, 64, 1, 4, 4), there]
    written(2 * PROBLEM.m, near)
    assert near not in sample(made_up(), PROBLEM, 4, "made-up")[:2]  # of another problem this device's own are nearer


def test_equal_spaces_are_sampled_equally(tuned_tables):
    assert sample(made_up("a"), PROBLEM, 20, "none") == sample(made_up("b"), PROBLEM, 20, "none")
    assert sample(made_up("a"), PROBLEM, 20, "none") != sample(made_up("a"), Matmul(1, 2, 3), 20, "none")


def test_what_both_languages_have_is_drawn_in_both(tuned_tables):
    """Of spaces that fit no budget, the same number of tries, of the same configs wherever the other language has
    them."""
    here, there = find("triton/last_arriver"), find("tilus/last_arriver")
    budget = Budget(configs=100, seconds=1.0)
    assert tries(here, PROBLEM, budget) == tries(there, PROBLEM, budget) == 100
    drawn = [[point_of(config) for config in first_tries(kernel, PROBLEM, budget, "none")] for kernel in (here, there)]
    spaces = [[point_of(config) for config in kernel.configs(PROBLEM)] for kernel in (here, there)]
    assert [len(points) for points in drawn] == [75, 75]
    both = [point for point in drawn[1] if point in spaces[0]]
    missed = [point for point in both if point not in drawn[0]]
    # The part ends earlier in the larger space, and nowhere else.
    assert len(both) > 10 and len(missed) < len(both) / 2


def test_spaces_that_fit_in_both_languages_are_tried_whole(tuned_tables):
    here, there = find("triton/last_arriver"), find("tilus/last_arriver")
    sizes = [len(kernel.configs(PROBLEM)) for kernel in (here, there)]
    assert sizes[0] > sizes[1] > 0
    whole = first_tries(there, PROBLEM, Budget(max(sizes), 1.0), "none")
    assert tries(there, PROBLEM, Budget(max(sizes), 1.0)) is None and set(whole) >= set(there.configs(PROBLEM))
    # What fits in one language alone is no whole search of that one.
    assert (
        tries(there, PROBLEM, Budget(sizes[0] - 1, 1.0)) == tries(here, PROBLEM, Budget(sizes[0] - 1, 1.0)) == sizes[1]
    )


SPLITTING = ("atomic", "last_arriver", "semaphore.in_place", "semaphore.fp32", "decompose_k.vector", "decompose_k.tile")


# Of the problems of two workloads, one of each kind that other configs are wanted for.
WANTED = {
    (tuple(tiles(problem)), splits(problem)): problem
    for workload in ("router", "skinny-epilogue-bf16")
    for _, problem in workloads.problems(workload)
}


@pytest.mark.parametrize("name", [*SPLITTING, "cluster"])
def test_spaces_split_alike_in_both_languages_and_every_band_has_a_step(name):
    for problem in WANTED.values():
        tried = []
        for language in ("triton", "tilus"):
            of_tile = {}
            for config in find(f"{language}/{name}").configs(problem):
                of_tile.setdefault((config.block_m, config.block_n, config.block_k), set()).add(config.split_k)
            tried.append(of_tile)
            for (_, _, block_k), split_ks in of_tile.items():
                steps = math.ceil(problem.k / block_k)
                assert all(s > 1 and (s - 1) * math.ceil(steps / s) < steps for s in split_ks)
        shared = tried[0].keys() & tried[1].keys()
        refused = {3, 6} if name == "cluster" else set()  # by Triton, whose clusters are powers of two
        assert shared and all(tried[0][tile] == tried[1][tile] - refused for tile in shared)
        assert refused <= set().union(*tried[1].values())


def test_one_of_the_splits_fills_the_gpu():
    """24 tiles of 64 x 128, and 7168 = 2^10 x 7."""
    assert 5 in splits(Matmul(768, 256, 7168)) and 5 not in splits(Matmul(1024, 256, 7168))


@pytest.mark.parametrize("name", SPLITTING)
def test_both_languages_split_alike_by_their_own_rules(name):
    """As many tiles, as many splits."""
    for problem in (Matmul(16, 256, 7168), Matmul(16, 16, 65536), Matmul(1, 48, 1024), Matmul(512, 512, 4096)):
        rules = [find(f"{language}/{name}").default_config(problem) for language in ("triton", "tilus")]
        tiles = [-(-problem.m // rule.block_m) * -(-problem.n // rule.block_n) for rule in rules]
        assert tiles[0] == tiles[1] and rules[0].split_k == rules[1].split_k


def test_a_k_too_short_for_two_bands_is_not_split():
    for language in ("triton", "tilus"):
        tried = find(f"{language}/atomic").configs(Matmul(16, 64, 16, layout=Layout.NK))
        assert tried and {config.split_k for config in tried} == {1}


def test_the_sample_has_as_many_tiles_as_it_has_room_for(tuned_tables):
    space = [MatmulConfig(16, 16, 16 * k, split, 1, 3) for k in range(1, 9) for split in range(1, 1 + k * k)]
    chosen = sample(made_up(space=space), PROBLEM, 9, "none")
    assert len({config.block_k for config in chosen[1:]}) == 8
    again = sample(made_up(space=space), PROBLEM, 17, "none")
    assert again[:9] == chosen and {config.block_k for config in again[9:16]} == {32, 48, 64, 80, 96, 112, 128}


def test_splits_that_fill_the_gpu_come_first(tuned_tables):
    tiles = [GroupedConfig(16, 64, 16 * k, split, 1, 3) for k in (1, 2, 4) for split in range(1, 60)]
    chosen = sample(made_up(space=tiles), Matmul(16, 256, 7168), 13, "none")[1:]  # 4 tiles of C
    blocks = [4 * config.split_k for config in chosen]
    assert all(99 <= count <= 132 for count in blocks) and len(set(blocks)) > 1
    assert Counter(config.block_k for config in chosen) == {16: 4, 32: 4, 64: 4}


@pytest.mark.parametrize("language", ["triton", "tilus"])
def test_no_way_to_feed_a_tile_crowds_out_another(language, tuned_tables):
    """Copies by pointers have most of the tiles, and splits multiply them."""
    problem = Matmul(512, 256, 7168, layout=Layout.KN)
    kernel = find(f"{language}/decompose_k.vector_pdl")

    def ways(configs) -> Counter:
        return Counter((point_of(config)["feed"], point_of(config)["transposed"]) for config in configs)

    counts = ways(sample(kernel, problem, 25, "none")[1:])
    assert counts.keys() == ways(kernel.configs(problem)).keys()
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_small_space_is_tried_whole(tuned_tables):
    chosen = sample(made_up(space=SPACE[:5]), PROBLEM, 20, "none")
    assert set(chosen) == {*SPACE[:5], MatmulConfig(64, 64, 64, 1, 4, 4)}


@pytest.mark.parametrize("kernel", all_contenders(), ids=lambda kernel: kernel.full_name)
def test_every_kernel_can_be_searched(kernel, tuned_tables):
    problem = OF_OP[kernel.op]
    if kernel.supports(problem, None) is None and kernel.configs(problem):
        chosen = sample(kernel, problem, 32, "none")
        assert len(chosen) == len(set(chosen)) <= 32
        assert all(kernel.supports(problem, config) is None for config in chosen)
        assert all(kernel.config_from(dataclasses.asdict(config)) == config for config in chosen)


@pytest.fixture
def clock_of_a_search(monkeypatch):
    """Times what `_time` gives it: 10 us times the number of the contender, 1 us in every round but the middle ones.
    Holds what it was given; `raises` is raised while contender 1 runs."""
    seen = SimpleNamespace(given=[], raises=None)

    def time_together(entrants, mode, rounds, clock, *, announce):
        seen.given.append((mode, rounds, [entrant.fault is not None for entrant in entrants]))
        for entrant in entrants:
            announce(entrant.name)
            if seen.raises is not None and entrant.name == "1":
                raise seen.raises
        taken = [[[10.0 * int(each.name), 10.0 * int(each.name), 1000.0]] * rounds for each in entrants]
        return [SimpleNamespace(rounds=of_one) for of_one in taken]

    def timed(name, kernel, problem, config, device):
        return Timed(name, kernel.launch, [Arguments((config,), {})], fault=lambda index, result: None)

    monkeypatch.setattr(search, "clock_of", lambda device: None)
    monkeypatch.setattr(search, "timed", timed)
    monkeypatch.setattr(search, "time_together", time_together)
    return seen


def searching_time(configs, rounds=5):
    told = []
    kernel = "triton/atomic"
    return search._time(PROBLEM, kernel, configs, rounds, torch.device("cpu"), 0, announce=told.append), told


def test_a_search_compares_medians_of_cold_times_and_judges_the_winner(clock_of_a_search):
    assert searching_time(SPACE[:3]) == ([0.0, 10.0, 20.0], ["0", "1", "2"])
    assert searching_time(SPACE[:1], rounds=20)[0] == [0.0]
    assert clock_of_a_search.given == [("cold", 5, [False] * 3), ("cold", 20, [True])]


@pytest.mark.parametrize(
    ("raised", "found"),
    [
        (NotTimed("2", "is left out", wrong=True), (2, "is left out")),  # told of another than runs
        (RuntimeError("illegal memory access"), (1, "RuntimeError: illegal memory access")),
    ],
)
def test_the_config_that_failed_is_out_and_no_other(clock_of_a_search, raised, found):
    clock_of_a_search.raises = raised
    assert searching_time(SPACE[:3])[0] == found


@pytest.mark.interpreted
def test_a_config_of_a_search_is_judged(monkeypatch):
    kernel, problem, device = find("triton/atomic"), Matmul(4, 16, 64, layout=Layout.NK), torch.device("cpu")
    config, told = kernel.default_config(problem), []
    assert search._check(problem, kernel.full_name, config, device, 0, announce=told.append) is None
    assert told == [kernel.full_name]
    monkeypatch.setattr(search, "launcher", lambda *given: lambda inputs, out: out.zero_())
    assert "over the bound" in search._check(problem, kernel.full_name, config, device, 0, announce=told.append)


@pytest.mark.parametrize("running", ["1", None])
def test_a_config_that_ends_the_process_is_out(running):
    class Dying:
        def call(self, function, *given):
            if function is search._prepare:
                return
            raise Died("killed by SIGSEGV", running, timed_out=False)

    trial = search._Trial(Dying(), PROBLEM, "triton/made_up", torch.device("cuda"), 0)
    assert trial.check(SPACE[0]) == "killed by SIGSEGV"
    with pytest.raises(Lost) as lost:
        trial.time(SPACE[:3], 5)
    assert (lost.value.config, lost.value.reason) == (SPACE[int(running or 0)], "killed by SIGSEGV")


@pytest.mark.parametrize("answer", [[1.0], [0.0, 1.0, 1.0], ["fast"] * 3, (3, "lost"), (-1, "lost"), (0, None), None])
def test_who_forges_times_in_a_search_is_out_and_ends_nothing(answer):
    class Forging:
        running, stops = "nobody", 0

        def call(self, function, *given):
            return answer

        def stop(self):
            self.stops += 1

    trial = search._Trial(Forging(), PROBLEM, "triton/made_up", torch.device("cuda"), 0)
    with pytest.raises(Lost) as lost:
        trial.time(SPACE[:3], 5)
    assert (lost.value.config, lost.value.reason, trial.child.stops) == (SPACE[0], NO_ANSWER, 1)
    if answer is not None:
        assert trial.check(SPACE[0]) == NO_ANSWER


class OnAClock(InProcess):
    """Takes 20 s to prepare a new process and a quarter of one to check; `ends` are the configs that it dies of.
    `fault` is found in each config, `unprepared` raised for lack of a process."""

    def __init__(self, ends=(), fault=None, unprepared=None):
        self.ends, self.fault, self.unprepared = ends, fault, unprepared
        self.seconds, self.prepared, self.asked = 0.0, False, Counter()

    def call(self, function, problem, *given):
        self.asked[function] += 1
        if function is search._prepare:
            if self.unprepared:
                raise self.unprepared
            self.seconds += 0 if self.prepared else 20
            self.prepared = True
            return None
        assert self.prepared
        if function is search._time:
            return times_of(given[1], given[2])
        self.seconds += 0.25
        if given[1] in self.ends:
            self.prepared = False
            raise Died("killed by SIGSEGV", given[0], timed_out=False)
        return self.fault


def test_a_new_process_after_a_death_takes_none_of_the_kernels_time(building, monkeypatch):
    child = OnAClock(ends=SPACE)
    monkeypatch.setattr(search, "monotonic", lambda: child.seconds)
    found = tuned_here(made_up(), child=child)["triton/made_up"]
    assert child.seconds > 40 * 20 and (found.tried, found.seconds, found.out_of_time) == (64, 16.0, False)


def test_where_no_process_can_be_prepared_a_kernel_costs_one_and_the_rest_goes_on(building):
    """As where the problem leaves no memory for a second process on the GPU."""
    child = OnAClock(unprepared=Died("OutOfMemoryError: CUDA out of memory", None, timed_out=False))
    kernels = made_up("one"), made_up("other")
    results = tuned_here(*kernels, child=child)
    assert child.asked == {search._prepare: 2} and results.keys() == {kernel.full_name for kernel in kernels}
    for found in results.values():
        assert found.config is None and set(found.failed.values()) == {"OutOfMemoryError: CUDA out of memory"}


def test_a_search_that_found_nothing_is_made_again(building):
    nothing = tuned_here(made_up(), child=OnAClock(fault="CUDA out of memory"))["triton/made_up"]
    assert nothing.config is None
    assert tuned_here(made_up(), child=OnAClock())["triton/made_up"].config is not None


def test_a_finished_search_is_kept_and_one_of_anothers_configs_is_not_made(in_process, monkeypatch):
    monkeypatch.setattr(search._Trial, "time", lambda trial, configs, rounds: times_of(configs, rounds))
    other = dataclasses.replace(made_up("other"), tuned_as="triton/made_up")
    first = tuned_here(made_up(), other)
    stages = len(in_process)
    assert first.keys() == {"triton/made_up"} and tuned_here(made_up(), other) == first
    assert all(not chosen for chosen in in_process[stages:])


def test_what_was_found_before_an_interruption_is_kept(in_process, monkeypatch):
    def time(trial, configs, rounds):
        if interrupted and trial.name == other.full_name and len(in_process) == 2:
            raise KeyboardInterrupt
        return times_of(configs, rounds)

    one, other = made_up("one"), made_up("other")
    monkeypatch.setattr(search._Trial, "time", time)
    interrupted = True
    with pytest.raises(KeyboardInterrupt):
        tuned_here(one, other)
    interrupted = False
    assert tuned_here(one, other).keys() == {one.full_name, other.full_name}
    assert [list(chosen) for chosen in in_process] == [[one.full_name, other.full_name]] * 2 + [[other.full_name]] * 2


def test_a_config_may_hang_for_as_long_as_the_search_may_take_and_no_longer(in_process, monkeypatch):
    monkeypatch.setattr(search._Trial, "time", lambda trial, configs, rounds: times_of(configs, rounds))
    for deadline_s in (1.0, 1000.0):
        child = InProcess()
        child.deadline_s = deadline_s
        tuned_here(made_up(), child=child)
        assert child.deadline_s == min(deadline_s, search.BUDGETS["quick"].seconds)


def test_what_could_not_be_built_is_told_and_not_tried(in_process, monkeypatch):
    def built(problem, chosen, *_):
        return {name: dict.fromkeys(configs[:2], "ptxas") for name, configs in chosen.items()}, dict.fromkeys(chosen, 0)

    monkeypatch.setattr(search, "build_all", built)
    monkeypatch.setattr(search._Trial, "time", lambda trial, configs, rounds: times_of(configs, rounds))
    found = tuned_here(made_up())["triton/made_up"]
    assert list(found.failed.values()) == ["ptxas"] * 4


def test_what_led_in_a_kept_search_of_the_other_language_is_tried_too(in_process, monkeypatch):
    here, there = made_up(), dataclasses.replace(made_up(space=SPACE[::-1]), language=Language.TILUS)
    monkeypatch.setattr(search._Trial, "time", lambda trial, configs, rounds: times_of(configs, rounds))
    kept = tuned_here(there)[there.full_name].config
    monkeypatch.setattr(search._Trial, "time", lambda trial, configs, rounds: [float(c.num_stages) for c in configs])
    asked = []
    real = search.neighbours
    monkeypatch.setattr(search, "neighbours", lambda *given: asked.append(given[2]) or real(*given))
    tuned_here(here, there)
    assert asked[0] == [kept]


@pytest.mark.parametrize("a_stage_s", [20, 8])  # of four stages, out of 30 s
def test_out_of_time_nothing_is_refined(in_process, monkeypatch, a_stage_s):
    def time(trial, configs, rounds):
        seconds[0] += a_stage_s
        return times_of(configs, rounds)

    seconds = [0.0]
    monkeypatch.setattr(search._Trial, "time", time)
    monkeypatch.setattr(search._Trial, "now", lambda trial: seconds[0])
    found = tuned_here(made_up())["triton/made_up"]
    assert found.out_of_time and in_process[1] == {"triton/made_up": []}


def test_of_what_was_tried_a_row_counts_the_space_alone():
    race = Race(AMPLE, lambda config: None, times_of, SPACE)
    race.enter([*SPACE[:10], MatmulConfig(64, 64, 64, 1, 4, 4)], {})
    record = race.confirmed().record()
    assert (race.result.tried, record.tried, record.space) == (11, 10, len(SPACE))
    assert str(race.result).startswith(f"10 of the space of {len(SPACE)} and 1 others tried, ")


def test_what_a_search_used_is_told_where_a_run_is_shown(capsys):
    with progress.shown():
        search.log.info("kept from an earlier run")
    search.log.info("nobody is shown this")
    assert " ".join(capsys.readouterr().err.split()) == "kept from an earlier run"


def test_a_search_needs_a_gpu():
    child, device = InProcess(), torch.device("cpu")
    with builders(1) as children, pytest.raises(ValueError, match="CUDA"):
        search.tune(PROBLEM, [made_up()], "quick", child=child, builders=children, device=device, versions=HERE)


def test_kept_searches_come_back(tmp_path, tuned_tables):
    found = result_of(not_built={SPACE[0]: "ptxas"})
    path = tmp_path / "search" / "one.json"
    cache.store(found, path)
    assert cache.load(made_up(), path) == found
    assert [each.name for each in path.parent.iterdir()] == ["one.json"]


def test_the_key_changes_with_source_versions_problem_and_budget(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernel, versions = made_up(), EnvironmentRecord(device="NVIDIA H200", triton="3.6.0", git="abc")
    path = cache.path_of(kernel, PROBLEM, "quick", versions)
    assert path.is_relative_to(tmp_path / "triton-vs-tilus")
    assert path == cache.path_of(kernel, PROBLEM, "quick", structs.replace(versions, git="def"))
    # A search writes the table: kept ones would never be found again.
    assert path == cache.path_of(kernel, PROBLEM, "quick", structs.replace(versions, tuned="def"))
    others = {
        cache.path_of(kernel, PROBLEM, "full", versions),
        cache.path_of(kernel, Matmul(1, 2, 3), "quick", versions),
        cache.path_of(kernel, PROBLEM, "quick", structs.replace(versions, triton="3.7.1")),
        cache.path_of(made_up("other"), PROBLEM, "quick", versions),
    }
    monkeypatch.setattr(cache, "source_hash", lambda kernel: "changed")
    others.add(cache.path_of(kernel, PROBLEM, "quick", versions))
    assert len(others | {path}) == 6


def test_the_key_changes_with_the_space_of_the_twin(monkeypatch, tmp_path):
    """It decides how many configs are tried, and so whether a kept search is what a new one would find."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    twins, paths = {}, set()
    monkeypatch.setattr("triton_vs_tilus.bench.search.space.find_or_none", twins.get)
    for configs in (SPACE[:10], SPACE[:20], SPACE):
        other = dataclasses.replace(made_up(space=configs), language=Language.TILUS)
        twins[other.full_name] = other
        paths.add(cache.path_of(made_up(), PROBLEM, "quick", HERE))
    assert len(paths) == 3


@pytest.mark.parametrize("module", [accuracy, clock, numbers, search])
def test_what_judges_and_times_is_in_the_key(module):
    assert Path(module.__file__) in cache._SEARCH


NEW = {"block_m": 32, "block_n": 32, "block_k": 64, "split_k": 3, "num_warps": 4, "num_stages": 2}
ATOMIC = find("triton/atomic")


def test_ranks_that_write_at_once_keep_what_the_others_found(tuned_tables):
    found = [[row("triton/atomic", Matmul(m, 256, 7168, layout=Layout.NK), NEW)] for m in range(1, 25)]
    source_hash(ATOMIC)  # ranks are processes; threads that parse at once can fail in CPython 3.11
    with ThreadPoolExecutor(8) as ranks:
        list(ranks.map(partial(write_table, "made-up"), found))
    entries = tuned.table("made-up")["triton/atomic"]
    assert [entry["problem"]["m"] for entry in entries] == list(range(1, 25))


def test_tables_are_sorted_merged_and_read_by_the_launchers(tuned_tables):
    problems = [Matmul(m, 256, 7168, layout=Layout.NK) for m in (64, 4, 16)]
    rows = [row("triton/atomic", problem, {**NEW, "split_k": problem.m}) for problem in problems]
    ignored = [
        row("triton/atomic", Matmul(5, 5, 5), NEW, source="tuned"),
        row("triton/atomic", Matmul(6, 6, 6), NEW, status="wrong"),
        row("triton/decompose_k.vector_unfused", PROBLEM, NEW),  # takes another's configs
    ]
    path = write_table("made-up", [*rows, *ignored])
    text = path.read_text()
    assert write_table("made-up", reversed(rows)).read_text() == text
    assert list(json.loads(text)) == ["triton/atomic"]
    assert [entry["problem"]["m"] for entry in json.loads(text)["triton/atomic"]] == [4, 16, 64]
    config, source = tuned.pick(ATOMIC, PROBLEM, "made-up")
    assert (config.split_k, source) == (64, "tuned")

    assert not list(tuned_tables.iterdir())  # a search leaves the shipped table alone
    better = row("triton/atomic", PROBLEM, {**NEW, "split_k": 9})
    write_table("made-up", [better, row("tilus/atomic", PROBLEM, NEW)])
    assert tuned.pick(ATOMIC, PROBLEM, "made-up")[0].split_k == 9
    assert list(json.loads(path.read_text())) == ["tilus/atomic", "triton/atomic"]
    user, shipped = tuned.fingerprint("made-up"), tuned.ship("made-up")
    assert shipped == tuned_tables / "made-up.json" and shipped.read_text() == path.read_text()
    assert tuned.fingerprint("made-up") == user


def test_an_entry_tells_its_search(tuned_tables):
    made = row("triton/atomic", PROBLEM, NEW)
    write_table("made-up", [made])
    (entry,) = tuned.table("made-up")["triton/atomic"]
    of_row = {"device": "NVIDIA H200", "gpus": 1, "driver": "580.1", "cuda": "13.0", "git": made.environment.git}
    of_row |= {"torch": "2.11.0", "triton": "3.6.0", "tilus": "0.2.0", "date": made.time[:10]}
    own = {
        "tried": 24,
        "space": 582,
        "out_of_time": False,
        "us": 7.5,
        "seconds": 9.0,
        "build_seconds": 80.0,
        "source": source_hash(ATOMIC),
    }
    assert entry["search"] == of_row | own


@pytest.mark.gpu
def test_a_quick_search_on_the_device(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernel, device = find("triton/decompose_k.vector"), torch.device("cuda", torch.cuda.current_device())
    with Child(60) as child, builders(60) as children:
        how = {"child": child, "builders": children, "device": device, "versions": environment(device)}
        found, again = (search.tune(PROBLEM, [kernel], "quick", **how)[kernel.full_name] for _ in range(2))
    assert found.config is not None and found.confirmed_us > 0
    assert found.tried == BUDGETS["quick"].configs or found.out_of_time
    assert again == found


def test_configs_that_share_what_is_compiled_are_built_by_one_process():
    jobs = []

    class Builders:
        def each(self, function, given):
            jobs.extend(given)
            return [([None] * len(configs), 2.0) for _, _, configs, _ in given]

    config = MatmulConfig(16, 16, 64, split_k=2, num_warps=1, num_stages=4)
    chosen = [config, dataclasses.replace(config, block_k=32), dataclasses.replace(config, split_k=3)]
    assert build.build_all(PROBLEM, {"made/up": chosen}, Builders(), torch.device("cpu")) == (
        {"made/up": {}},
        {"made/up": 4.0},
    )
    assert sorted([config.split_k for config in configs] for _, _, configs, _ in jobs) == [[2], [2, 3]]
