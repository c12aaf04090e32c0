"""A sweep becomes trials on phones, and trials become runs in randomised blocks."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.planning.expand import SkipCode, SkippedPhone, expand_sweep
from orchestrator.planning.randomize import order_runs
from orchestrator.planning.trials import PlannedRun, Trial
from orchestrator.sweepfile.phone_selection import select_by_patterns
from orchestrator.sweepfile.sweep_file import Sweep, read_sweep
from tests.analysis.builders import GOLD, LITTLE, PRIME, phone
from workloads.protocol.phone_facts import PhoneFacts

GOOD = "farm: 1\nname: demo\nworkload: mlp-4\nphones: all\n"
TWO_CELLS = GOOD + "matrix: {batch_size: [32, 256]}\n"
SAME_LITTLE = LITTLE.model_copy(update={"ladder_khz": ()})


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("px6-*", True),  # the serial
        ("model px6-01", True),  # the model, in any case
        ("sm83?0", True),  # the SoC
        ("px6", False),  # a pattern covers the whole name
        ("*", True),
    ],
)
def test_a_pattern_matches_serial_model_or_soc(pattern: str, expected: bool) -> None:
    assert select_by_patterns([pattern]).selector.matches(phone("PX6-01")) == expected


def test_every_matched_phone_gets_every_cell() -> None:
    expansion = expand_sweep(read_sweep(TWO_CELLS), [phone("a"), phone("b")])
    expected = [(serial, size) for serial in ("a", "b") for size in (32, 256)]
    assert [(t.phone, t.case.parameters["batch_size"]) for t in expansion.trials] == expected
    assert expansion.skipped == ()
    assert len({trial.id for trial in expansion.trials}) == 4


def test_the_id_of_a_trial_does_not_depend_on_other_phones() -> None:
    sweep = read_sweep(TWO_CELLS)
    alone = {trial.id for trial in expand_sweep(sweep, [phone("a")]).trials}
    assert alone < {trial.id for trial in expand_sweep(sweep, [phone("b"), phone("a")]).trials}
    assert all(len("tr-") + 16 == len(each) for each in alone)


@pytest.mark.parametrize(
    ("facts", "file", "code", "reason"),
    [
        (
            phone("a"),
            GOOD.replace("all", "[b*, c]"),
            SkipCode.NOT_SELECTED,
            "matches none of: b*, c",
        ),
        (phone("a", runner_error="no OpenCL"), GOOD, SkipCode.NO_RUNNER, "no OpenCL"),
        (phone("a", clusters=()), GOOD, SkipCode.CORES_UNKNOWN, "its cores are unknown"),
        (
            phone("a", clusters=(LITTLE,)),
            GOOD,
            SkipCode.CONDITION_IMPOSSIBLE,
            "Model a has 0 big cores; big4 needs 4",
        ),
        (
            phone("a"),
            GOOD + "conditions: {freq: 123kHz}",
            SkipCode.CONDITION_IMPOSSIBLE,
            "policy4 has no clock of 123 kHz; see 'farm phone show'",
        ),
        (
            phone("a", clocks_writable=False),
            GOOD + "conditions: {freq: mid}",
            SkipCode.CONDITION_IMPOSSIBLE,
            "its clocks cannot be set; use freq: free, or freq: high, which then only checks that "
            "the clocks stay at their maximum",
        ),
        (
            phone("a", cpu_zones=()),
            GOOD + "conditions: {protocol: soaked, start_temp_max_c: any}",
            SkipCode.NO_CPU_TEMP,
            "it reports no CPU temperature; protocol: soaked cannot see when it is steady",
        ),
        (
            phone("a", clusters=(SAME_LITTLE, GOLD, PRIME)),
            GOOD + "conditions: {cores: little2}",
            SkipCode.CLOCKS_UNKNOWN,
            "policy0 lists no clocks; write freq: free",
        ),
        (
            phone("a", cpu_zones=()),
            GOOD + "conditions: {start_temp_max_c: 32}",
            SkipCode.NO_CPU_TEMP,
            "it reports no CPU temperature; write start_temp_max_c: rest, or any",
        ),
        # a phone may report terminal escapes
        (phone("a", runner_error="no\x1b[31m runner"), GOOD, SkipCode.NO_RUNNER, "no[31m runner"),
    ],
)
def test_a_phone_that_cannot_run_any_cell_is_skipped_with_the_reason(
    facts: PhoneFacts, file: str, code: SkipCode, reason: str
) -> None:
    expansion = expand_sweep(read_sweep(file), [facts])
    assert expansion.trials == ()
    assert expansion.skipped == (SkippedPhone("a", code, reason),)


@pytest.mark.parametrize("start", ["any", "rest"])
def test_a_sweep_without_a_start_temperature_needs_no_sensor(start: str) -> None:
    file = GOOD + f"conditions: {{start_temp_max_c: {start}}}"
    assert len(expand_sweep(read_sweep(file), [phone("a", cpu_zones=())]).trials) == 1


def test_cells_that_a_phone_cannot_run_are_skipped() -> None:
    file = TWO_CELLS.replace("}", ", cores: [big2, prime]}")
    expansion = expand_sweep(read_sweep(file), [phone("a", clusters=(LITTLE, GOLD))])
    assert {trial.condition.cores for trial in expansion.trials} == {"big2"}
    cells = ("mlp-4 batch_size=32, cold prime high", "mlp-4 batch_size=256, cold prime high")
    assert expansion.skipped == (
        SkippedPhone("a", SkipCode.CONDITION_IMPOSSIBLE, "Model a has no prime core", cells),
    )


def test_only_the_clusters_that_are_used_must_have_the_clock() -> None:
    file = GOOD + "conditions: {cores: big2, freq: 1500000kHz}"
    assert len(expand_sweep(read_sweep(file), [phone("a")]).trials) == 1


def test_a_workload_that_never_calls_the_phone_needs_neither_runner_nor_cores() -> None:
    file = GOOD.replace("workload: mlp-4\n", "matrix: {workload: [noop, mlp-4]}\n")
    expansion = expand_sweep(read_sweep(file), [phone("a", runner_error="no runner", clusters=())])
    assert [trial.case.workload for trial in expansion.trials] == ["noop"]
    assert [each.reason for each in expansion.skipped] == ["no runner"]


def plan_runs(sweep: Sweep, *serials: str) -> list[PlannedRun]:
    """Expand a sweep on phones and order its runs."""
    return list(
        order_runs(sweep, expand_sweep(sweep, [phone(serial) for serial in serials]).trials)
    )


EIGHT_CELLS = GOOD + "matrix: {batch_size: [1, 2, 3, 4, 5, 6, 7, 8]}\nseed: 7\nrepeat: 3\n"


def test_every_block_of_a_phone_has_every_trial_once() -> None:
    sweep = read_sweep(EIGHT_CELLS)
    trials = expand_sweep(sweep, [phone("a"), phone("b")]).trials
    planned = order_runs(sweep, trials)
    expected = Counter((trial.id, block, block) for trial in trials for block in range(3))
    assert Counter((run.trial, run.repeat, run.block) for run in planned) == expected


def batched_ids(planned: Sequence[PlannedRun], size: int) -> list[list[str]]:
    """Return the trial ids of runs in groups of one size."""
    ids = [run.trial for run in planned]
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def test_positions_count_over_all_blocks_of_a_phone() -> None:
    planned = plan_runs(read_sweep(EIGHT_CELLS), "a")
    assert [run.position for run in planned] == list(range(24))
    assert [run.position // 8 for run in planned] == [run.block for run in planned]


def test_every_block_has_its_own_order_and_the_seed_matters() -> None:
    sweep = read_sweep(EIGHT_CELLS)
    case_of = {t.id: t.case.label for t in expand_sweep(sweep, [phone("a"), phone("b")]).trials}
    planned = [case_of[run.trial] for run in plan_runs(sweep, "a", "b")]
    orders = {tuple(planned[start : start + 8]) for start in range(0, 48, 8)}
    assert len(orders) == 6
    other = read_sweep(EIGHT_CELLS.replace("seed: 7", "seed: 8"))
    case_of |= {t.id: t.case.label for t in expand_sweep(other, [phone("a")]).trials}
    assert planned[:8] != [case_of[run.trial] for run in plan_runs(other, "a")][:8]


def test_the_order_never_changes() -> None:
    # If this order changes, stored sweeps can no longer be replayed.
    sweep = read_sweep(EIGHT_CELLS)
    case, condition = sweep.cases[0], sweep.conditions[0]
    trials = [Trial(str(number), case, condition, "a") for number in range(8)]
    expected = ["74531026", "56270314", "16507324"]
    assert ["".join(block) for block in batched_ids(order_runs(sweep, trials), 8)] == expected


@settings(deadline=None)
@given(st.permutations(range(8)))
def test_the_order_does_not_depend_on_the_sequence_of_trials(indices: list[int]) -> None:
    sweep = read_sweep(EIGHT_CELLS)
    trials = expand_sweep(sweep, [phone("a")]).trials
    assert order_runs(sweep, trials) == order_runs(sweep, [trials[index] for index in indices])
