"""The rule by which `linear` chooses: from rows alone, never slower than torch.mm where the rows can tell."""

import json
import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import msgspec
import pytest
import torch
from made_rows import row

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.bench import dispatch as command
from triton_vs_tilus.bench.rows import queries, times
from triton_vs_tilus.bench.rows.row import Row
from triton_vs_tilus.common import dispatch, tuned
from triton_vs_tilus.common.dispatch import BASELINE, Choice, Measured, choose
from triton_vs_tilus.common.distance import bytes_of_copies, distance
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout, Matmul

KERNELS = {"triton": kernels_triton.KERNELS, "tilus": kernels_tilus.KERNELS}
each_language = pytest.mark.parametrize("language", KERNELS)
ROUTER = Matmul(16, 256, 7168, layout=Layout.NK)
FASTER, DETERMINISTIC = "triton/atomic", "triton/decompose_k.vector"


def measured(problem: Matmul, **us: float) -> Measured:
    return Measured(problem=problem.key, rows="made", us={BASELINE: 10.0, **us})


def chosen(problem: Matmul, *entries: Measured, deterministic: bool = False) -> str | None:
    choice = choose(KERNELS["triton"], problem, "h200", deterministic, entries)
    return choice.kernel and choice.kernel.full_name


@lru_cache
def rows_of(name: str) -> list[Row]:
    (rows,) = queries.recorded(f"h200:{name}").values()
    return rows


def test_tables_are_what_the_rows_give():
    tables = times.tables()
    assert sorted(tables) == dispatch.devices()
    for slug, entries in tables.items():
        assert dispatch.path_of(slug).read_text() == times.text(entries), f"python {command.__file__}"


def was_found_since(choice: Choice, row: Row) -> bool:
    """Whether no search had found the chosen config by the day of the row."""
    entries = tuned.table("h200").get(choice.kernel.full_name, [])
    days = [each["search"]["date"] for each in entries if choice.kernel.config_from(each["config"]) == choice.config]
    return bool(days) and row.time[:10] < min(days)


@each_language
def test_asked_without_its_own_rows_a_measured_problem_is_never_given_a_kernel_that_loses_there(language):
    """Where the row ran the config that is chosen: that of another number of tokens, or one found since, may be slower
    or faster."""
    table = dispatch.table("h200")
    taken = since = own = held = held_own = 0
    for entry in table:
        problem = Matmul.from_fields(entry["problem"])
        others = [other for other in table if other is not entry]
        choice = choose(KERNELS[language], problem, "h200", measured=others)
        if choice.kernel is not None:
            taken += 1
            row = next(
                row
                for row in rows_of(entry["rows"])
                if row.contender == choice.kernel.full_name and row.problem.to_problem().key == problem.key
            )
            ran_it = choice.kernel.config_from(row.config) == choice.config
            if not ran_it and was_found_since(choice, row):
                since += 1
                continue
            takes_its_own = dispatch.shared_tokens(problem.m) == problem.m
            own += takes_its_own
            if ran_it:
                assert entry["us"][choice.kernel.full_name] <= 1.03 * entry["us"][BASELINE], problem.name
                held += 1
                held_own += takes_its_own
    # What was found since its row was recorded, no row can tell: record those files anew where they grow many.
    assert taken > len(table) / 2 and held > 0.375 * len(table)
    # Other tokens take the config of a power of 4: the more of them are searched, the fewer rows ran that.
    assert held > 0.75 * (taken - since)
    assert own > taken / 3 and held_own > 0.95 * own


@each_language
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_measured_problem_takes_a_kernel_that_won_there(language, deterministic):
    for entry in dispatch.table("h200"):
        problem = Matmul.from_fields(entry["problem"])
        choice = choose(KERNELS[language], problem, "h200", deterministic)
        assert choice.measured == problem.key and choice.apart == 0
        if choice.kernel is not None:
            assert choice.us == entry["us"][choice.kernel.full_name] < choice.torch_us == entry["us"][BASELINE]
            assert choice.kernel.deterministic or not deterministic
            assert choice.kernel.supports(problem, choice.config) is None


def test_the_fastest_wins_and_of_deterministic_ones_the_fastest():
    here = measured(ROUTER, **{FASTER: 7.0, DETERMINISTIC: 8.0})
    assert chosen(ROUTER, here) == FASTER
    assert chosen(ROUTER, here, deterministic=True) == DETERMINISTIC


def test_what_is_not_faster_by_the_margin_is_not_taken():
    assert chosen(ROUTER, measured(ROUTER, **{FASTER: 9.8})) is None
    assert chosen(ROUTER, measured(ROUTER, **{FASTER: 9.6})) == FASTER


def test_a_kernel_that_splits_k_alone_in_its_language_is_no_choice():
    """Timed beside somebody's published kernel, say: it does not say which kernel to take."""
    alone = [row(), row("triton/decompose_k.vector", us=5.0), row("published_triton/decompose_k.first", us=6.0)]
    assert times.measured({Path("x.jsonl"): alone}) == []
    (entry,) = times.measured({Path("x.jsonl"): [*alone, row("triton/decompose_k.vector_unfused", us=7.0)]})
    assert entry["us"] == {
        "torch/mm": 10.0,
        "triton/decompose_k.vector": 5.0,
        "triton/decompose_k.vector_unfused": 7.0,
    }
    both = [row(), row(FASTER, us=5.0), row(DETERMINISTIC, us=7.0), row("tilus/cluster", us=6.0)]
    (entry,) = times.measured({Path("x.jsonl"): both})
    assert set(entry["us"]) == {BASELINE, FASTER, DETERMINISTIC}
    (entry,) = times.measured({Path("x.jsonl"): [row(), row("tilus/data_parallel", us=6.0), row(FASTER, us=5.0)]})
    assert set(entry["us"]) == {BASELINE, "tilus/data_parallel"}


def test_of_two_measurements_that_with_more_kernels_counts_then_that_of_its_own_dtype():
    fp16 = replace(ROUTER, dtype=torch.float16, out_dtype=None)
    names = (BASELINE, FASTER, DETERMINISTIC)
    many, own = ([row(name, us=5.0, problem=of) for name in names] for of in (fp16, ROUTER))
    matched = [
        *own[:2],
        row(f"{DETERMINISTIC}@tilus", us=5.0, problem=ROUTER),
        *own[2:],
    ]  # of fewer rounds, yet of its own dtype
    for others, rows in ((own[:2], "many"), (own, "others"), (matched, "others")):
        (entry,) = times.measured({Path("many.jsonl"): many, Path("others.jsonl"): others})
        assert entry["rows"] == rows


def test_of_measurements_alike_that_of_more_rounds_counts_then_the_later():
    def run(rounds: int, day: int) -> list[Row]:
        made = [row(name, us=5.0) for name in (BASELINE, FASTER, DETERMINISTIC)]
        for each in made:
            each.timing["cold"].rounds = rounds
        return [msgspec.structs.replace(each, time=f"2026-11-{day}T08:00:00+00:00") for each in made]

    for one, other in ((run(60, 21), run(30, 22)), (run(30, 22), run(30, 21))):
        for files in ({"one": one, "other": other}, {"other": other, "one": one}):
            (entry,) = times.measured({Path(f"{name}.jsonl"): rows for name, rows in files.items()})
            assert entry["rows"] == "one"


def test_the_farther_the_measured_problem_the_more_it_must_have_won_by():
    many = replace(ROUTER, m=256)
    here, won_by_far = measured(many, **{FASTER: 9.5}), measured(many, **{FASTER: 5.0})
    assert chosen(replace(many, k=7000), here) == FASTER
    assert chosen(replace(many, k=3584), here) is None
    assert chosen(replace(many, k=14336), here) is None
    assert chosen(replace(many, k=3584), won_by_far) == chosen(replace(many, k=14336), won_by_far) == FASTER
    assert chosen(replace(many, k=64), won_by_far) is None


@pytest.mark.parametrize(
    "tokens, there, taken", [(16, 512, FASTER), (8, 512, None), (32, 1024, FASTER), (31, 1024, None)]
)
def test_what_is_far_from_the_tokens_or_from_those_whose_config_they_share_is_torchs(tokens, there, taken):
    here = measured(replace(ROUTER, m=there, k=4096), **{FASTER: 4.0})
    assert chosen(replace(ROUTER, m=tokens), here) == taken


def test_of_two_that_won_that_which_gains_more_over_half_and_twice_the_tokens_is_taken():
    us = {4: 2.0, 8: 8.0, 16: 5.0, 32: 8.0, 64: 2.0}
    entries = [measured(replace(ROUTER, m=m), **{FASTER: us[m], DETERMINISTIC: 6.5}) for m in us]
    assert chosen(ROUTER, *entries) == DETERMINISTIC


def test_of_tokens_that_were_not_measured_the_nearest_ranks_the_kernels():
    far = measured(replace(ROUTER, m=256), **{FASTER: 8.0, DETERMINISTIC: 2.0})
    assert chosen(ROUTER, measured(ROUTER, **{FASTER: 5.0, DETERMINISTIC: 6.0}), far) == FASTER


def test_a_kernel_must_have_won_with_these_tokens_and_with_those_whose_config_they_take():
    def taken(here: float, shared: float, **us: float) -> str | None:
        entries = measured(replace(ROUTER, m=31), **{FASTER: here}, **us), measured(ROUTER, **{FASTER: shared}, **us)
        return chosen(replace(ROUTER, m=31), *entries)

    assert taken(5.0, 5.0) == FASTER
    assert taken(5.0, 11.0) is None and taken(11.0, 5.0) is None
    assert taken(2.0, 11.0, **{DETERMINISTIC: 8.0}) == DETERMINISTIC  # FASTER gains more over the range, and lost at 16


def test_that_the_second_nearest_is_far_does_not_make_the_nearest_far():
    here = measured(replace(ROUTER, m=31), **{FASTER: 2.0})
    assert chosen(replace(ROUTER, m=31), here, measured(replace(ROUTER, m=2048), **{FASTER: 2.0})) == FASTER
    assert chosen(replace(ROUTER, m=30), here, measured(replace(ROUTER, m=4096), **{FASTER: 2.0})) == FASTER


def test_what_is_rounded_more_than_once_or_stands_for_a_comparison_is_not_taken():
    here = measured(ROUTER, **{FASTER: 5.0})
    (kernel,) = (kernel for kernel in KERNELS["triton"] if kernel.full_name == FASTER)
    others = replace(kernel, roundings=lambda config: 2), replace(kernel, tuned_as="triton/last_arriver")
    taken = [choose([each], ROUTER, "h200", measured=[here]).kernel for each in (kernel, *others)]
    assert taken == [kernel, None, None]
    (second,) = (kernel for kernel in KERNELS["triton"] if kernel.full_name == DETERMINISTIC)
    here = measured(ROUTER, **{FASTER: 5.0, DETERMINISTIC: 6.0})
    for other in others:  # the next one may have won, too
        assert choose([other, second], ROUTER, "h200", measured=[here]).kernel is second


def test_up_to_64_tokens_what_is_smaller_than_the_measured_is_one_unit_away_at_most():
    for tokens, taken in ((64, FASTER), (256, None)):
        here = replace(ROUTER, m=tokens)
        assert chosen(replace(here, n=64, k=2048), measured(here, **{FASTER: 9.3})) == taken
        assert chosen(replace(here, n=64, k=2048), measured(here, **{FASTER: 9.4})) is None
        assert chosen(replace(here, n=512, k=2048), measured(here, **{FASTER: 8.3})) is None


@pytest.mark.parametrize("change", [{"m": 64}, {"m": 1024}, {"n": 64}, {"k": 1792}], ids=str)
def test_four_times_a_size_is_two_units_away(change):
    """Of many tokens, more or fewer, and of a smaller weight."""
    many = replace(ROUTER, m=256)
    for us, taken in ((9.1, None), (8.9, FASTER)):  # 1.11 times as fast is asked for
        assert chosen(replace(many, **change), measured(many, **{FASTER: us})) == taken


def test_a_weight_much_larger_than_any_that_was_measured_is_torchs():
    here = measured(ROUTER, **{FASTER: 5.0})
    assert chosen(replace(ROUTER, n=512), here) == FASTER
    assert chosen(replace(ROUTER, n=513), here) is None


def test_between_two_measured_problems_a_kernel_must_have_won_at_both():
    between = replace(ROUTER, k=6000)
    won, lost = measured(ROUTER, **{FASTER: 5.0}), measured(replace(ROUTER, k=4096), **{FASTER: 11.0})
    assert chosen(ROUTER, won, lost) == FASTER
    assert chosen(between, won, lost) is None


def test_no_more_than_the_two_nearest_measured_problems_are_asked():
    won = [measured(replace(ROUTER, k=k), **{FASTER: 5.0}) for k in (4096, 7168)]
    assert chosen(replace(ROUTER, k=6000), *won, measured(replace(ROUTER, k=14336), **{FASTER: 11.0})) == FASTER


@pytest.mark.parametrize(("asked", "shared", "taken"), [(5.0, 5.0, FASTER), (5.0, 11.0, None), (11.0, 5.0, None)])
def test_a_kernel_must_have_won_with_these_tokens_and_with_those_whose_config_they_share(asked, shared, taken):
    problem = replace(ROUTER, m=20)
    assert chosen(problem, measured(problem, **{FASTER: asked}), measured(ROUTER, **{FASTER: shared})) == taken


def test_a_kernel_that_cannot_run_the_problem_leaves_it_to_the_next():
    here = measured(ROUTER, **{FASTER: 5.0, DETERMINISTIC: 7.0})
    kernels = {kernel.full_name: kernel for kernel in KERNELS["triton"]}
    refusing = replace(kernels[FASTER], supports=lambda problem, config: None if config else "not these")
    assert choose([refusing, kernels[DETERMINISTIC]], ROUTER, "h200", measured=[here]).kernel is kernels[DETERMINISTIC]


def test_another_layout_or_dtype_tells_nothing():
    here = measured(ROUTER, **{FASTER: 5.0})
    assert chosen(replace(ROUTER, layout=Layout.KN), here) is None
    assert chosen(replace(ROUTER, dtype=torch.float32, out_dtype=None), here) is None
    assert chosen(replace(ROUTER, dtype=torch.float16, out_dtype=None), here) == FASTER
    assert chosen(replace(ROUTER, out_dtype=torch.float32, epilogue=Epilogue.BIAS_SILU), here) == FASTER


def test_numbers_of_tokens_share_the_config_of_the_power_of_four_next_to_them():
    shares = {tokens: dispatch.shared_tokens(tokens) for tokens in (1, 2, 3, 7, 8, 31, 32, 127, 128, 1024)}
    assert shares == {1: 1, 2: 4, 3: 4, 7: 4, 8: 16, 31: 16, 32: 64, 127: 64, 128: 256, 1024: 1024}


def config_taken(monkeypatch, problem: Matmul, config_of, supports=lambda problem, config: None):
    """Where the searched config of M rows is config_of(kernel, M)."""
    (kernel,) = (replace(each, supports=supports) for each in KERNELS["triton"] if each.full_name == FASTER)
    monkeypatch.setattr(dispatch.tuned, "pick", lambda kernel, of, slug: (config_of(kernel, of.m), "tuned"))
    here = measured(replace(problem, m=dispatch.shared_tokens(problem.m)), **{FASTER: 5.0})
    return choose([kernel], problem, "h200", measured=[here]).config


def test_a_config_that_only_the_shared_tokens_can_run_is_not_taken(monkeypatch):
    def supports(problem, config):
        return "rows" if config and problem.m < config else None

    taken = [config_taken(monkeypatch, replace(ROUTER, m=m), lambda kernel, m: m, supports) for m in (8, 17)]
    assert taken == [8, 16]


@pytest.mark.parametrize("block_m, group_m, taken", [(64, 2, 2), (16, 8, 4), (16, 4, 4), (256, 8, 8)])
def test_half_of_the_shared_tokens_are_walked_in_groups_too_of_two_rows_at_least(monkeypatch, block_m, group_m, taken):
    def config_of(kernel, m):
        return replace(kernel.default_config(ROUTER), block_m=block_m, group_m=group_m)

    assert config_taken(monkeypatch, replace(ROUTER, m=128), config_of).group_m == taken


def test_fp32_is_torchs_where_torch_may_round_it(monkeypatch):
    problem = Matmul(16, 16, 8192, torch.float32)
    here = measured(problem, **{FASTER: 5.0})
    assert chosen(problem, here) == FASTER
    monkeypatch.setattr(dispatch, "rounds_to_tf32", lambda: True)
    assert chosen(problem, here) is None
    assert chosen(ROUTER, measured(ROUTER, **{FASTER: 5.0})) == FASTER  # of bf16 nothing is rounded to TF32


@each_language
def test_a_device_without_a_table_takes_a_rule_that_holds_on_one_that_has(language):
    for entry in dispatch.table("h200"):
        problem = Matmul.from_fields(entry["problem"])
        choice = choose(KERNELS[language], problem, "unknown")
        assert "rule of thumb" in choice.why
        if choice.kernel is not None:
            assert entry["us"][choice.kernel.full_name] < entry["us"][BASELINE]
            assert choice.config == choice.kernel.default_config(problem)
    most = Matmul(dispatch.THUMB_TOKENS, dispatch.THUMB_COLUMNS, dispatch.THUMB_DEPTH)
    assert choose(KERNELS[language], most, "unknown").kernel is not None
    beyond = (replace(most, m=most.m + 1), replace(most, n=most.n + 1), replace(most, k=most.k - 1))
    for problem in (*beyond, replace(most, dtype=torch.float32, out_dtype=None)):
        assert choose(KERNELS[language], problem, "unknown").kernel is None


@pytest.fixture
def sisters(monkeypatch, tmp_path):
    """Two devices with tables of their own, of which one stands in for the other."""
    monkeypatch.setattr(dispatch, "FOLDER", tmp_path)
    monkeypatch.setitem(dispatch.tuned.STAND_INS, "its-sister", "a-gpu")
    wide = replace(ROUTER, m=64)
    (tmp_path / "a-gpu.json").write_text(
        times.text([measured(ROUTER, **{FASTER: 5.0}), measured(wide, **{FASTER: 4.0})])
    )
    dispatch.table.cache_clear()
    yield tmp_path
    dispatch.table.cache_clear()


def test_a_device_without_a_table_takes_its_stand_ins(sisters):
    choice = choose(KERNELS["triton"], ROUTER, "its-sister")
    assert choice.kernel.full_name == FASTER and choice.why == "measured at 16x256x7168-bf16-nk (a-gpu/made)"
    assert "rule of thumb" in choose(KERNELS["triton"], ROUTER, "unknown").why


def test_its_own_times_go_before_its_stand_ins(sisters):
    (sisters / "its-sister.json").write_text(times.text([measured(ROUTER, **{FASTER: 6.0})]))
    dispatch.table.cache_clear()
    of_its_own, of_stand_in = (choose(KERNELS["triton"], replace(ROUTER, m=m), "its-sister") for m in (16, 64))
    assert (of_its_own.us, of_its_own.rows) == (6.0, "made")
    assert (of_stand_in.us, of_stand_in.rows) == (4.0, "a-gpu/made")
    assert choose(KERNELS["triton"], ROUTER, "a-gpu").us == 5.0


def test_an_h100_gains_by_what_was_searched_on_an_h200():
    """Where its own rows tell: what is taken by the H200's times is nowhere slower on the H100, and mostly wins."""
    (there,) = [entries for slug, entries in times.tables().items() if slug == "h100-80gb-hbm3"]
    asked = [entry for entry in there if (entry["problem"]["n"], entry["problem"]["k"]) == (256, 7168)]
    gains = []
    for entry in asked:
        problem = Matmul.from_fields(entry["problem"])
        for kernels in KERNELS.values():
            choice = choose(kernels, problem, "h200")
            if choice.kernel is not None:
                gains.append(entry["us"][BASELINE] / entry["us"][choice.kernel.full_name])
                assert gains[-1] > 1, (problem.name, str(choice))
    assert len(asked) == 13 and sum(gain > 1 / 0.97 for gain in gains) >= 18


@pytest.mark.parametrize(
    ("change", "bytes_there"),
    [({"k": 7175}, 2), ({"k": 7170}, 4), ({"k": 7172}, 8), ({"layout": Layout.KN, "n": 252}, 8), ({"k": 7176}, 16)],
    ids=lambda value: str(value),
)
def test_rows_that_are_copied_by_other_bytes_say_nothing_of_a_product(change, bytes_there):
    """Next to a fast product by its sizes, one of an odd K took 7 times as long."""
    problem = replace(ROUTER, **change)
    there = measured(replace(problem, n=256, k=7168), **{FASTER: 5.0})
    assert bytes_of_copies(problem.key) == bytes_there
    choice = choose(KERNELS["triton"], problem, "h200", measured=[there])
    assert (choice.kernel is not None) is (bytes_there == 16)
    assert ("nothing near" in choice.why) is (bytes_there != 16)


def test_by_the_element_no_more_tokens_are_near_than_share_a_program():
    odd = replace(ROUTER, k=7175)
    there = measured(odd, **{FASTER: 5.0})
    assert [chosen(replace(odd, m=m), there) for m in (4, 8, 16, 64)] == [None, FASTER, FASTER, None]
    assert chosen(replace(ROUTER, m=64), measured(ROUTER, **{FASTER: 5.0})) == FASTER


def test_a_choice_says_what_it_takes_and_why():
    choice = choose(KERNELS["triton"], ROUTER, "h200", measured=[measured(ROUTER, **{FASTER: 5.0})])
    text = "5.0 us against 10.0 of torch.mm, 2.00x; measured at 16x256x7168-bf16-nk (made)"
    assert str(choice).endswith(text) and str(choice).startswith("triton/atomic [")
    far = choose(KERNELS["triton"], replace(ROUTER, k=64), "h200", measured=[measured(ROUTER, **{FASTER: 5.0})])
    assert str(far) == "torch/mm: nothing near is known: nearest measured at 16x256x7168-bf16-nk (made)"
    json.dumps(choice.measured)


def test_what_is_as_near_is_told_as_near_in_either_order():
    """By sums of logarithms 55 of some 600 shapes between two recorded ones were nearer to one of them, by rounding."""
    for size in range(8, 129, 8):
        between = {"m": 32, "n": size, "k": 16384}
        for other in ({"m": m, "n": n, "k": k} for m in (16, 48) for n in (16, 32, 48, 64) for k in (8192, 28672)):
            assert distance(between, other) == distance(other, between)
    asked = {"m": 32, "n": 48, "k": 16384}
    assert distance(asked, {**asked, "n": 32}) == distance(asked, {**asked, "m": 48}) == math.log2(1.5)
