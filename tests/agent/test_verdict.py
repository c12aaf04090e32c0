"""The verdict: every way in which a run may fail to count."""

from dataclasses import replace

import pytest

from agent.run.lines import Done
from agent.run.verdict import Evidence, held_share, judge
from workloads.condition import Condition, Protocol
from workloads.measure import Standing

COLD = Condition()
ENDURANCE = Condition(protocol=Protocol.ENDURANCE)
SOUND = Evidence(
    condition=COLD,
    asked_mask=0xF0,
    found_mask=0xF0,
    asked_khz={4: 2419200, 7: 2841600},
    held_share=1.0,
    counted=True,
    capped_khz={},
    coolers=(),
    start_temp_c=30.0,
    temps_c=(30.0, 41.0, 45.0),
    done=Done(steps=100, ns=1, t_ns=1),
    span_s=8.1,
    boot_ids=("a", "a"),
)


def test_a_run_as_asked_is_valid() -> None:
    """Nothing to say against it: no reasons."""
    verdict = judge(SOUND)
    assert (verdict.standing, verdict.reasons) == (Standing.VALID, ())


@pytest.mark.parametrize(
    ("change", "standing", "words"),
    [
        ({"boot_ids": ("a", "b")}, Standing.VOID, "restarted"),
        ({"found_mask": 0xFF}, Standing.VOID, "cores ff, asked were f0"),
        ({"start_temp_c": 36.0}, Standing.VOID, "36.0 °C"),
        ({"start_temp_c": None}, Standing.VOID, "start temperature"),
        ({"held_share": 0.83}, Standing.VOID, "83.0%"),
        ({"held_share": None}, Standing.SUSPECT, "could not be verified"),
        ({"counted": False}, Standing.SUSPECT, "only sampled"),
        ({"capped_khz": {4: 1804800}}, Standing.SUSPECT, "capped to 1804800"),
        ({"capped_khz": {4: 1804800}, "held_share": None}, Standing.VOID, "capped to 1804800"),
        ({"coolers": ("thermal-cpufreq-0",)}, Standing.SUSPECT, "thermal-cpufreq-0"),
        ({"span_s": 2.0}, Standing.VOID, "2.0 s"),
        ({"done": Done(steps=3, ns=1, t_ns=1)}, Standing.SUSPECT, "3 steps"),
        ({"temps_c": ()}, Standing.SUSPECT, "no temperature"),
        ({"temps_c": (30.0,) * 40}, Standing.SUSPECT, "stood still"),
        ({"temps_c": (38.4,) * 40}, Standing.SUSPECT, "stood still"),
        ({"temps_c": (38.0,) * 40, "start_temp_c": 30.3}, Standing.SUSPECT, "stood still"),
        ({"unseen_s": 5.0}, Standing.SUSPECT, "nothing was read for 5.0 s"),
    ],
)
def test_each_doubt_has_its_weight(
    change: dict[str, object], standing: Standing, words: str
) -> None:
    """One thing is not as asked, and the verdict says which."""
    verdict = judge(replace(SOUND, **change))  # type: ignore[arg-type]
    assert verdict.standing is standing
    assert words in " ".join(verdict.reasons)


def test_a_sensor_of_whole_degrees_may_rest_on_a_new_one() -> None:
    """It moved by a degree and stayed there: coarse, but alive."""
    assert judge(replace(SOUND, temps_c=(38.0,) * 40)).standing is Standing.VALID


def test_throttling_is_what_endurance_measures() -> None:
    """The very clocks that void a cold run are the finding of an endurance run."""
    throttled = replace(
        SOUND,
        condition=ENDURANCE,
        span_s=600.0,
        held_share=0.3,
        capped_khz={4: 1804800},
        coolers=("thermal-cpufreq-0",),
    )
    assert judge(throttled).standing is Standing.VALID


def test_an_unpinned_clock_is_not_judged() -> None:
    """`free` asks for nothing."""
    assert judge(replace(SOUND, asked_khz={}, held_share=None)).standing is Standing.VALID


def test_the_worst_policy_decides() -> None:
    """Share of ticks at the asked clock; too few ticks say nothing."""
    before = {4: "1 0\n2 0", 7: "5 0\n6 0"}
    after = {4: "1 10\n2 990", 7: "5 0\n6 1000"}
    assert held_share({4: 2, 7: 6}, before, after) == pytest.approx(0.99)
    assert held_share({4: 2}, {4: "2 0"}, {4: "2 20"}) is None
    assert held_share({}, {}, {}) is None
