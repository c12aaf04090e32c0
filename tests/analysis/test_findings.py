"""The sentences of `farm demo`: order, cost of heat, and a federated round."""

import pytest

from orchestrator.analysis.findings import fleet_sentences, phone_figures, round_of
from orchestrator.analysis.measurements import MeasuredRun
from tests.analysis.builders import endurance, measured
from workloads.protocol.verdict import Validity

Fleet = dict[str, tuple[float, float]]  # cold and hot, in ms
FLEET: Fleet = {"a": (10.0, 30.0), "b": (11.0, 20.0), "c": (12.0, 22.0), "d": (13.0, 23.0)}


def runs(fleet: Fleet, blocks: int = 3) -> list[MeasuredRun]:
    """Build the runs of a fleet, which differ by a percent from block to block."""
    return [
        run
        for phone, (cold, hot) in fleet.items()
        for block in range(blocks)
        for run in (
            measured(phone, cold * (1 + 0.01 * block), repeat=block),
            endurance(phone, hot * (1 + 0.01 * block), repeat=block),
        )
    ]


def sentences(fleet: Fleet, blocks: int = 3) -> tuple[str, ...]:
    return fleet_sentences(phone_figures(runs(fleet, blocks)))


def test_a_fleet_whose_order_changes_with_heat() -> None:
    order, cost, cohort = sentences(FLEET)
    assert order == (
        "When cold, Model a is fastest with 10.1 ms per step. After ten minutes of training, "
        "Model b is, with 20.2 ms, and Model a is fourth with 30.3 ms."
    )
    assert cost.startswith(
        "Heat costs Model a most: after ten minutes a step takes 200 % longer than when cold (95 %:"
    )
    assert cost.endswith("and it falls from first place to fourth.")
    assert cohort == (
        "For a federated round of three phones, choose Model b, Model c and Model d, not the three "
        "that are fastest when cold: a round lasts as long as its slowest phone, and Model a would "
        "need 30.3 ms per step when hot, not 23.2."
    )


@pytest.mark.parametrize(
    ("changes", "number", "text"),
    [
        (
            {"b": (10.05, 20.0)},
            0,
            "Model a and Model b are too close to tell apart (10.1 to 10.2 ms)",
        ),
        ({"c": (12.0, 20.1)}, 0, "After ten minutes, Model b and Model c are too close to tell"),
        ({"a": (10.0, 11.0)}, 0, "Model a still is, with 11.1 ms."),
        ({"a": (10.0, 11.0)}, 2, "Model c: they are the fastest when cold and when hot (22.2 ms)"),
    ],
)
def test_what_is_close_and_what_stays(changes: Fleet, number: int, text: str) -> None:
    assert text in sentences(FLEET | changes)[number]


def test_heat_that_costs_nothing_is_not_a_finding() -> None:
    flat = {phone: (cold, cold) for phone, (cold, _) in FLEET.items()}
    assert sentences(flat)[1] == "What heat costs is too close to tell on every phone."


def test_one_run_has_no_interval() -> None:
    assert len(sentences(FLEET, blocks=1)) == 2


@pytest.mark.parametrize("missing", ["cold", "endurance"])
def test_nothing_is_concluded_before_all_phones_have_both(missing: str) -> None:
    left = [r for r in runs(FLEET) if (r.phone, r.condition.protocol) != ("d", missing)]
    fleet = phone_figures(left)
    assert fleet_sentences(fleet) == (
        "Some phones have no result yet, so they cannot be compared.",
    )
    assert round_of(fleet) == []


def test_runs_that_do_not_count_are_left_out() -> None:
    suspect = measured("a", 1.0, repeat=9, validity=Validity.SUSPECT)
    assert phone_figures([*runs(FLEET), suspect]) == phone_figures(runs(FLEET))
