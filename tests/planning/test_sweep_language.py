"""The sweep-file language: rules, named values, phones, and the policy."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.planning.expand import Expansion, SkipCode, expand_sweep
from orchestrator.planning.randomize import order_runs
from orchestrator.sweepfile.policy import Budget, Collect, Policy, RetryLimits, StopRule
from orchestrator.sweepfile.sweep_errors import BadSweep
from orchestrator.sweepfile.sweep_file import Sweep, read_sweep
from tests.analysis.builders import phone
from workloads.protocol.phone_facts import BatteryCondition

BEFORE, EXAMPLES = Path(__file__).parent / "before", Path(__file__).parents[2] / "examples"
GOOD = "farm: 1\nname: demo\nworkload: mlp-4\nphones: all\n"
MATRIX = "matrix: {batch_size: [32, 64, 256], cores: [big2, big4]}\n"
# Ids of sweeps in stores, which must not change unless what is measured changes.
IDS = {
    "cambridge": "sw-1bcb99b7",
    "daily": "sw-bf589529",
    "demo": "sw-3843d44a",
    "emdl21": "sw-38cdfc6d",
    "infeasible": "sw-bdf2cb78",
    "inference": "sw-1c044889",
    "smoke": "sw-fee37c78",
    "tx2": "sw-7d740e1c",
}


@pytest.mark.parametrize("name", IDS)
def test_an_older_file_keeps_its_id(name: str) -> None:
    folder = EXAMPLES if (EXAMPLES / f"{name}.yaml").exists() else BEFORE
    assert read_sweep((folder / f"{name}.yaml").read_text()).id == IDS[name]


def cell_settings(sweep: Sweep) -> set[tuple[Any, ...]]:
    return {(cell.case.parameters["batch_size"], cell.condition.cores) for cell in sweep.cells}


def test_excluded_cells_are_removed_and_counted_per_rule() -> None:
    rules = "exclude:\n  - {batch_size: [64, 256], cores: big2, why: slow}\n"
    rules += "  - {batch_size: 999, why: nothing}\n"
    sweep = read_sweep(GOOD + MATRIX + rules)
    assert cell_settings(sweep) == {(32, "big2"), (32, "big4"), (64, "big4"), (256, "big4")}
    assert [count.cells for count in sweep.rules] == [2, 0]
    assert (sweep.matrix_cells, sweep.runs_per_phone) == (6, 20)


def test_a_rule_with_when_applies_only_to_matching_phones() -> None:
    rule = "exclude: [{batch_size: 256, when: ram_mb < 6000, why: out of memory}]"
    sweep = read_sweep(GOOD + MATRIX + rule)
    expansion = expand_sweep(sweep, [phone("large"), phone("small", ram_mb=4096)])
    assert counts(expansion) == {"large": 6, "small": 4}
    (skipped,) = expansion.skipped
    assert (skipped.phone, skipped.code, len(skipped.cells)) == ("small", SkipCode.EXCLUDED, 2)
    assert skipped.reason == "exclude #1: out of memory"


def counts(expansion: Expansion) -> dict[str, int]:
    found: dict[str, int] = {}
    for trial in expansion.trials:
        found[trial.phone] = found.get(trial.phone, 0) + 1
    return found


def test_included_cells_are_added_and_not_excluded() -> None:
    rules = "exclude: [{cores: big4, why: tried}]\n"
    rules += "include:\n  - {batch_size: [1, 2], cores: big4}\n  - {batch_size: 32, cores: big2}\n"
    sweep = read_sweep(GOOD + MATRIX + rules)
    expected = {(32, "big2"), (64, "big2"), (256, "big2"), (1, "big4"), (2, "big4")}
    assert cell_settings(sweep) == expected
    assert [count.cells for count in sweep.rules] == [3, 2, 0]


def test_a_cell_can_be_included_only_on_matching_phones() -> None:
    sweep = read_sweep(GOOD + "include: [{batch_size: 4096, when: ram_mb >= 6000}]")
    expansion = expand_sweep(sweep, [phone("large"), phone("small", ram_mb=4096)])
    assert counts(expansion) == {"large": 2, "small": 1}
    assert [each.code for each in expansion.skipped] == [SkipCode.NOT_INCLUDED]


def test_a_named_value_sets_several_conditions() -> None:
    values = (
        "values: {setup: {burst: {cores: big4, freq: high}, rest: {cores: little2, freq: low}}}"
    )
    sweep = read_sweep(GOOD + values + "\nmatrix: {setup: [burst, rest], batch_size: [32, 64]}")
    found = {(cell.condition.cores, cell.condition.freq) for cell in sweep.cells}
    assert found == {("big4", "high"), ("little2", "low")}
    assert len(sweep.cells) == 4
    without = "\nexclude: [{setup: rest, batch_size: 64, why: slow}]"
    text = GOOD + values + "\nmatrix: {setup: [burst, rest], batch_size: [32, 64]}" + without
    assert len(read_sweep(text).cells) == 3


def test_a_named_value_can_stand_for_one_condition() -> None:
    named = "values: {cores: {fast: big4, slow: {cores: little1, freq: low}}}\n"
    sweep = read_sweep(GOOD + named + "matrix: {cores: [fast, slow, big2]}")
    expected = {("big4", "high"), ("little1", "low"), ("big2", "high")}
    assert {(cell.condition.cores, cell.condition.freq) for cell in sweep.cells} == expected
    plain = read_sweep(GOOD + "matrix: {cores: [big4]}").id
    assert read_sweep(GOOD + named + "matrix: {cores: [fast]}").id == plain


def test_the_most_specific_setting_wins() -> None:
    defaults = "defaults: {batch_size: 64, cores: big2, freq: low, steps_min: 7}\n"
    text = GOOD + defaults + "conditions: {freq: mid}\nmatrix: {cores: [big4]}\n"
    cell, added = read_sweep(text + "include: [{batch_size: 8}]").cells
    assert (
        cell.case.parameters["batch_size"],
        *(cell.condition.cores, cell.condition.freq, cell.condition.steps_min),
    ) == (64, "big4", "mid", 7)
    assert (
        added.case.parameters["batch_size"],
        *(added.condition.cores, added.condition.freq),
    ) == (8, "big2", "mid")


def test_phones_are_chosen_by_facts_and_tags() -> None:
    file = GOOD.replace("all", "{select: ram_mb >= 6000 and not tag == broken}")
    phones = [phone("a"), phone("b", ram_mb=4096), phone("c")]
    expansion = expand_sweep(read_sweep(file), phones, {"c": {"broken"}})
    assert expansion.phones == ("a",)
    assert [each.reason for each in expansion.skipped] == [
        "ram_mb is 4096, not >= 6000",
        "it matches tag == broken",
    ]


def test_take_draws_phones_per_model_and_the_reason_names_them() -> None:
    file = GOOD.replace("all", "{take: 2 of each model}")
    sweep = read_sweep(file)
    phones = [phone(f"p{n}", model="Pixel 6") for n in range(5)] + [phone("m", model="Mi 9")]
    taken = expand_sweep(sweep, phones).phones
    assert (len(taken), "m" in taken) == (3, True)
    assert taken == tuple(sorted(expand_sweep(sweep, phones[::-1]).phones, key=taken.index))
    other = set(expand_sweep(read_sweep(file + "seed: 5"), phones).phones)
    assert other != set(taken)  # the seed decides, not the order of the list
    drawn = sorted(set(taken) - {"m"})
    skipped = expand_sweep(sweep, phones).skipped
    assert [each.code for each in skipped] == [SkipCode.NOT_TAKEN] * 3
    assert all(serial in each.reason for each in skipped for serial in drawn)
    # a phone that already has trials keeps them
    others = [serial for serial in ("p0", "p1", "p2", "p3", "p4") if serial not in taken]
    again = expand_sweep(sweep, phones, assigned={others[0]}).phones
    assert others[0] in again


def test_take_prefers_the_least_worn_phones_of_a_model() -> None:
    sweep = read_sweep(GOOD.replace("all", "{take: 2 of each model}"))
    worn = {"p0": 400, "p1": 20, "p2": None, "p3": 410, "p4": 700}
    phones = [
        phone(serial, model="Pixel 6", battery=BatteryCondition(cycles=cycles))
        for serial, cycles in worn.items()
    ]
    assert set(expand_sweep(sweep, phones).phones) == {"p1", "p2"}
    # a phone that has trials keeps them, however worn; equally worn ones are drawn
    assert "p4" in expand_sweep(sweep, phones, assigned={"p4"}).phones


def test_a_policy_is_read_and_does_not_change_the_id() -> None:
    how = (
        "owner: lin\npriority: 80\ndeadline: 2026-11-20T18:00+01:00\ntags: [paper, cpu]\n"
        "retry: {condition: 5}\nbudget: {wall: 36h, failures: 10%}\ncollect: {telemetry: none}\n"
    )
    sweep = read_sweep(GOOD + how)
    assert sweep.id == read_sweep(GOOD).id
    policy = sweep.policy
    assert (policy.owner, policy.priority, policy.tags) == ("lin", 80, ("cpu", "paper"))
    assert (policy.deadline and policy.deadline.isoformat()) == "2026-11-20T18:00:00+01:00"
    assert policy.retry == RetryLimits(phone=3, condition=5)
    assert policy.budget == Budget(wall_s=129600, failures_share=0.1)
    assert policy.collect == Collect(telemetry=False)
    assert Policy.model_validate(policy.model_dump(mode="json")) == policy
    assert read_sweep(GOOD + "budget: {failures: 3}").policy.budget == Budget(failures=3)


def test_repeats_may_continue_until_the_median_is_precise() -> None:
    sweep = read_sweep(GOOD + "repeat: {until: 2.5%, min: 8, max: 40, metric: step_ms}")
    rule = StopRule(half_width_rel=0.025, n_min=8, n_max=40, metric="step_ms")
    assert (sweep.policy.stop, sweep.runs_per_phone) == (rule, 40)
    assert rule.grid == (8, 12, 18, 27, 40)
    assert read_sweep(GOOD + "repeat: 40").id != sweep.id


def test_a_baseline_recurs_in_every_part_of_every_block() -> None:
    sizes = list(range(1, 18))
    how = "order: {baseline: {batch_size: 1}, every: 8}\nrepeat: 2\n"
    sweep = read_sweep(GOOD + f"matrix: {{batch_size: {sizes}}}\n{how}")
    trials = expand_sweep(sweep, [phone("a")]).trials
    control = next(each.id for each in trials if each.case.parameters["batch_size"] == 1)
    planned = order_runs(sweep, trials)
    assert sweep.runs_per_phone == len(planned) == 2 * (16 + 2)
    assert len({(run.trial, run.repeat) for run in planned}) == len(planned)
    for block in (0, 1):
        line = [run.trial for run in planned if run.block == block]
        controls = [index for index, trial in enumerate(line) if trial == control]
        assert [index // 9 for index in controls] == [0, 1]  # one per eight other runs


def test_the_cpu_study_of_emdl21_has_the_expected_cells() -> None:
    sweep = read_sweep((EXAMPLES / "emdl21-cpu.yaml").read_text())
    assert sweep.matrix_cells == 5 * 4 * 7 * 3
    assert [count.cells for count in sweep.rules] == [8, 38, 1]
    phones = [phone("a"), phone("b", ram_mb=4096), phone("c", rooted=False)]
    expansion = expand_sweep(sweep, phones)
    assert counts(expansion) == {"a": 413, "b": 375}
    planned = order_runs(sweep, expansion.trials)
    assert len(planned) == 20 * (412 + 11 + 374 + 10)


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        ("exclude: [{batch_size: 32}]", 11, "exclude[0]: the key 'why' is missing"),
        ("exclude: [{why: x}]", 11, "exclude[0]: names no cell"),
        ("exclude: {batch_size: 32}", 10, "exclude: this is not a list"),
        ("exclude: [{batchsize: 3, why: x}]", 12, "exclude[0]: unknown key 'batchsize'; did you"),
        ("exclude: [{batch_size: x, why: z}]", 24, "exclude[0].batch_size: 'x' is not an int"),
        ("exclude: [{batch_size: 32, why: x}]", 1, "exclude: no cell is left"),
        # the location of a mistake in a selector is exact, with and without quotes
        ("exclude: [{when: ram_gb < 6, why: x}]", 18, "exclude[0].when: unknown fact 'ram_gb'"),
        ("exclude: [{when: 'root and', why: x}]", 27, "exclude[0].when: a fact, a pattern or"),
        ("include: [{cores: huge}]", 19, "include[0].cores: 'huge' is not a core set"),
        ("include: [{workload: nix}]", 22, "include[0].workload: unknown workload 'nix'"),
        ("values: {setup: {a: big4}}", 21, "values.setup.a: write its settings"),
        ("values: {setup: {a: {coers: big4}}}", 22, "values.setup.a: unknown key 'coers'; did"),
        ("values: {cores: {big2: {cores: big4}}}", 18, "values.cores: 'big2' is already a value"),
        ("values: {cores: {a: {workload: x}}}", 22, "values.cores.a: unknown key 'workload'"),
        ("matrix: {setup: [a]}", 10, "matrix: unknown axis 'setup'"),
        ("defaults: {coers: big4}", 12, "defaults: unknown key 'coers'; did you mean 'cores'?"),
        ("repeat: {min: 6}", 9, "repeat: the key 'until' is missing"),
        ("repeat: {until: 2}", 17, "repeat.until: '2' is not a percentage; write"),
        ("repeat: {until: 0%}", 17, "repeat.until: 0% is out of range; use 0.01% to 100%"),
        ("repeat: {until: 2%, min: 5}", 26, "repeat.min: 5 runs cannot give a 95.0% interval"),
        ("repeat: {until: 2%, max: 5}", 26, "repeat.max: 5 is less than the minimum number"),
        ("repeat: {until: 2%, metric: step}", 29, "repeat.metric: unknown metric 'step'"),
        ("order: {every: 3}", 16, "order.every: needs a baseline"),
        ("order: {baseline: {batch_size: 7}}", 19, "order.baseline: no cell matches"),
        (
            "order: {baseline: {batch_size: [7]}}",
            32,
            "order.baseline.batch_size: a baseline is one",
        ),
        ("order: {orders: 4}", 9, "order: unknown key 'orders'; use baseline or every"),
        ("retry: {farm: 3}", 9, "retry: unknown key 'farm'; use phone or condition"),
        ("retry: {phone: 0}", 16, "retry.phone: 0 is out of range; use 1 to 20"),
        ("budget: {wall: 3}", 16, "budget.wall: '3' is not a duration"),
        ("budget: {failures: 101%}", 20, "budget.failures: '101%' is not a percentage"),
        ("collect: {telemetry: no}", 22, "collect.telemetry: no is read as the boolean"),
        ("priority: 101", 11, "priority: 101 is out of range"),
        ("deadline: tomorrow", 11, "deadline: 'tomorrow' is not a time; write it like 2026"),
        ("deadline: 2026-11-20T18:00", 11, "deadline: the time zone is missing"),
        ("tags: [Paper]", 8, "tags[0]: 'Paper' is not a tag; write up to 32 lower case"),
        ("owner: ''", 8, "owner: the value is missing; write 1 to 64 characters"),
    ],
)
def test_a_mistake_is_reported_with_its_location(line: str, column: int, expected: str) -> None:
    with pytest.raises(BadSweep) as caught:
        read_sweep(GOOD + line)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (5, column)
    assert problem.text.startswith(expected)


@pytest.mark.parametrize(
    ("phones", "column", "expected"),
    [
        ("{select: rot}", 18, "phones.select: 'rot': did you mean 'root'?"),
        ("{selcet: root}", 10, "phones: unknown key 'selcet'; did you mean 'select'?"),
        ("{take: two}", 16, "phones.take: 'two' is not valid; write each, 2, or"),
        ("{take: 2 of each cable}", 16, "phones.take: '2 of each cable' is not valid"),
        ("{at_least: 0}", 20, "phones.at_least: 0 is out of range"),
    ],
)
def test_a_mistake_in_the_phones_is_reported_with_its_location(
    phones: str, column: int, expected: str
) -> None:
    with pytest.raises(BadSweep) as caught:
        read_sweep(GOOD.replace("all", phones))
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (4, column)
    assert problem.text.startswith(expected)


def test_a_condition_set_by_two_axes_is_refused() -> None:
    text = GOOD + "values: {setup: {a: {freq: low}}}\nmatrix: {setup: [a], freq: [high]}\n"
    with pytest.raises(BadSweep) as caught:
        read_sweep(text)
    assert [each.text for each in caught.value.problems] == [
        "matrix: setup and freq both set freq; remove it from one of them"
    ]
    text = GOOD + "values: {setup: {a: {freq: low}}}\nmatrix: {setup: [a]}\nconditions: {freq: low}"
    with pytest.raises(BadSweep) as caught:
        read_sweep(text)
    assert [each.text for each in caught.value.problems] == [
        "conditions: freq is already set by the axis setup (line 6); remove one of them"
    ]


def test_an_include_must_name_its_workload_if_there_are_several() -> None:
    text = GOOD.replace("workload: mlp-4", "matrix: {workload: [mlp-3, mlp-4]}")
    with pytest.raises(BadSweep) as caught:
        read_sweep(text + "include: [{batch_size: 7}]")
    assert [each.text for each in caught.value.problems] == [
        "include[0]: the key 'workload' is missing"
    ]
