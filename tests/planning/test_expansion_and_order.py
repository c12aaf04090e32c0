"""A sweep becomes trials on phones, and trials become runs in randomised blocks."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.nouns import PlannedRun, Trial
from orchestrator.plan.choice import matching
from orchestrator.plan.expand import Skipped, expand
from orchestrator.plan.order import order
from orchestrator.plan.sweep import Sweep, read_sweep
from tests.analysis.builders import GOLD, LITTLE, PRIME, phone
from workloads.phone import PhoneFacts

GOOD = "farm: 1\nname: demo\nworkload: mlp-4\nphones: all\n"
TWO_CELLS = GOOD + "matrix: {batch_size: [32, 256]}\n"
SAME_LITTLE = LITTLE.model_copy(update={"ladder_khz": ()})


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("px6-*", True),  # the serial
        ("model px6-01", True),  # the model, whatever its case
        ("sm83?0", True),  # the SoC
        ("px6", False),  # a pattern covers the whole name
        ("*", True),
    ],
)
def test_a_pattern_is_held_against_serial_model_and_soc(pattern: str, expected: bool) -> None:
    assert expected == matching([pattern]).selector.matches(phone("PX6-01"))


def test_every_matched_phone_gets_every_cell() -> None:
    expansion = expand(read_sweep(TWO_CELLS), [phone("a"), phone("b")])
    expected = [(serial, size) for serial in ("a", "b") for size in (32, 256)]
    assert expected == [(t.phone, t.case.parameters["batch_size"]) for t in expansion.trials]
    assert expansion.skipped == ()
    assert len({trial.id for trial in expansion.trials}) == 4


def test_a_trial_keeps_its_id_whatever_other_phones_there_are() -> None:
    sweep = read_sweep(TWO_CELLS)
    alone = {trial.id for trial in expand(sweep, [phone("a")]).trials}
    assert alone < {trial.id for trial in expand(sweep, [phone("b"), phone("a")]).trials}
    assert all(len("tr-") + 16 == len(each) for each in alone)


@pytest.mark.parametrize(
    ("facts", "file", "reason"),
    [
        (phone("a"), GOOD.replace("all", "[b*, c]"), "matches none of: b*, c"),
        (phone("a", runner_absent="no OpenCL"), GOOD, "no OpenCL"),
        (phone("a", clusters=()), GOOD, "its cores are not known"),
        (
            phone("a", clusters=(LITTLE,)),
            GOOD,
            "Model a has 0 big cores, big4 asks for 4",
        ),
        (
            phone("a"),
            GOOD + "conditions: {freq: 123kHz}",
            "policy4 has no step of 123 kHz",
        ),
        (
            phone("a", clusters=(SAME_LITTLE, GOLD, PRIME)),
            GOOD + "conditions: {cores: little2}",
            "policy0 tells no clocks; write freq: free",
        ),
        (
            phone("a", cpu_zones=()),
            GOOD,
            "it has no CPU temperature to start from; write start_temp_max_c: any",
        ),
        # what a phone says of itself may carry terminal escapes
        (phone("a", runner_absent="no\x1b[31m runner"), GOOD, "no[31m runner"),
    ],
)
def test_a_phone_that_can_do_nothing_is_skipped_with_the_reason(
    facts: PhoneFacts, file: str, reason: str
) -> None:
    expansion = expand(read_sweep(file), [facts])
    assert ((), (Skipped("a", reason),)) == (expansion.trials, expansion.skipped)


def test_whoever_asks_for_no_temperature_needs_no_thermometer() -> None:
    file = GOOD + "conditions: {start_temp_max_c: any}"
    assert len(expand(read_sweep(file), [phone("a", cpu_zones=())]).trials) == 1


def test_cells_that_a_phone_cannot_run_are_skipped_one_by_one() -> None:
    file = TWO_CELLS.replace("}", ", cores: [big2, prime]}")
    expansion = expand(read_sweep(file), [phone("a", clusters=(LITTLE, GOLD))])
    assert {"big2"} == {trial.condition.cores for trial in expansion.trials}
    cells = ("mlp-4 batch_size=32, cold prime high", "mlp-4 batch_size=256, cold prime high")
    assert (Skipped("a", "Model a has no prime core", cells),) == expansion.skipped


def test_only_the_clusters_that_are_used_must_have_the_clock() -> None:
    file = GOOD + "conditions: {cores: big2, freq: 1500000kHz}"
    assert len(expand(read_sweep(file), [phone("a")]).trials) == 1


def test_a_workload_that_never_calls_the_phone_needs_neither_runner_nor_cores() -> None:
    file = GOOD.replace("workload: mlp-4\n", "matrix: {workload: [noop, mlp-4]}\n")
    expansion = expand(read_sweep(file), [phone("a", runner_absent="no runner", clusters=())])
    assert [trial.case.workload for trial in expansion.trials] == ["noop"]
    assert [each.reason for each in expansion.skipped] == ["no runner"]


def planned_for(sweep: Sweep, *serials: str) -> list[PlannedRun]:
    return list(order(sweep, expand(sweep, [phone(serial) for serial in serials]).trials))


EIGHT_CELLS = GOOD + "matrix: {batch_size: [1, 2, 3, 4, 5, 6, 7, 8]}\nseed: 7\nrepeat: 3\n"


def test_every_block_of_a_phone_holds_every_trial_once_with_its_repeat() -> None:
    sweep = read_sweep(EIGHT_CELLS)
    trials = expand(sweep, [phone("a"), phone("b")]).trials
    planned = order(sweep, trials)
    expected = Counter((trial.id, block, block) for trial in trials for block in range(3))
    assert expected == Counter((run.trial, run.repeat, run.block) for run in planned)


def batched_ids(planned: Sequence[PlannedRun], size: int) -> list[list[str]]:
    ids = [run.trial for run in planned]
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def test_positions_count_through_the_blocks_of_a_phone() -> None:
    planned = planned_for(read_sweep(EIGHT_CELLS), "a")
    assert list(range(24)) == [run.position for run in planned]
    assert [run.position // 8 for run in planned] == [run.block for run in planned]


def test_blocks_and_phones_are_shuffled_apart_and_the_seed_matters() -> None:
    sweep = read_sweep(EIGHT_CELLS)
    case_of = {t.id: t.case.label for t in expand(sweep, [phone("a"), phone("b")]).trials}
    planned = [case_of[run.trial] for run in planned_for(sweep, "a", "b")]
    orders = {tuple(planned[start : start + 8]) for start in range(0, 48, 8)}
    assert len(orders) == 6
    other = read_sweep(EIGHT_CELLS.replace("seed: 7", "seed: 8"))
    case_of |= {t.id: t.case.label for t in expand(other, [phone("a")]).trials}
    assert planned[:8] != [case_of[run.trial] for run in planned_for(other, "a")][:8]


def test_the_order_is_the_same_on_every_machine_and_in_every_version() -> None:
    # Written down once: if this changes, sweeps that were stored can no longer be replayed.
    sweep = read_sweep(EIGHT_CELLS)
    case, condition = sweep.cases[0], sweep.conditions[0]
    trials = [Trial(str(number), case, condition, "a") for number in range(8)]
    expected = ["74531026", "56270314", "16507324"]
    assert expected == ["".join(block) for block in batched_ids(order(sweep, trials), 8)]


@settings(deadline=None)
@given(st.permutations(range(8)))
def test_the_sequence_in_which_trials_arrive_does_not_matter(places: list[int]) -> None:
    sweep = read_sweep(EIGHT_CELLS)
    trials = expand(sweep, [phone("a")]).trials
    assert order(sweep, trials) == order(sweep, [trials[place] for place in places])
