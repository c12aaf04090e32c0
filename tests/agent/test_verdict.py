"""The verdict: every way in which a run may fail to count."""

from dataclasses import replace

import pytest

from agent.run.canary import Canary
from agent.run.gates import Effort
from agent.run.lines import Done
from agent.run.surroundings import Surroundings
from agent.run.verdict import Evidence, held_share, judge
from workloads.catalogue import Work, bind, work_of
from workloads.condition import Condition, Protocol
from workloads.measure import Source, Standing

COLD = Condition()
ENDURANCE = Condition(protocol=Protocol.ENDURANCE)
WORK = work_of(bind("mlp-4", {}))
PRODUCT = work_of(bind("sgemm", {}))
DONE = Done(
    steps=100,
    ns=1,
    t_ns=1,
    loss_first=2.3,
    loss_last=0.7,
    parameters_changed=True,
    parameters=WORK.parameters,
    macs=WORK.macs,
    learned=6,
    moved=6,
    fallbacks=0,
)
SILENT = Done(steps=100, ns=1, t_ns=1, parameters_changed=True)
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
    span_s=8.1,
    boot_ids=("a", "a"),
    effort=Effort(WORK, DONE, warmup=5, source=Source.PHONE),
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
        ({"temps_c": ()}, Standing.SUSPECT, "no temperature"),
        ({"temps_c": (30.0,) * 40}, Standing.SUSPECT, "stood still"),
        ({"temps_c": (38.4,) * 40}, Standing.SUSPECT, "stood still"),
        ({"temps_c": (38.0,) * 40, "start_temp_c": 30.3}, Standing.SUSPECT, "stood still"),
        ({"unseen_s": 5.0}, Standing.SUSPECT, "nothing was read for 5.0 s"),
        ({"strays": {77: 0xFF}}, Standing.VOID, "thread 77 could run on cores ff, asked f0"),
        ({"around": Surroundings(slept_s=2.0)}, Standing.VOID, "slept for 2.0 s"),
        ({"around": Surroundings(others_pct=60.0)}, Standing.SUSPECT, "60 % busy"),
        ({"around": Surroundings(inside_pct=20.0)}, Standing.SUSPECT, "took 20 % of its own"),
        ({"around": Surroundings(body_rise_c=4.0)}, Standing.SUSPECT, "warmed by 4.0 °C"),
        (
            {"around": Surroundings(charging_share=0.5), "charger_cut": True},
            Standing.SUSPECT,
            "charged for 50%",
        ),
        ({"around": Surroundings(charging_share=0.5)}, Standing.VALID, "charged for 50%"),
        (
            {
                "around": Surroundings(steady_share=0.7),
                "condition": Condition(freq="fixed"),
                "asked_khz": {},
            },
            Standing.SUSPECT,
            "steady for 70.0%",
        ),
        ({"canary": Canary(1.0, 1.1, 1.0)}, Standing.VOID, "a canary after the run took +10.0%"),
        ({"canary": Canary(1.1, 1.1, 1.0)}, Standing.SUSPECT, "+10.0% against its own record"),
        ({"swapped_mb": 300.0}, Standing.SUSPECT, "300 MB went to swap"),
    ],
)
def test_each_doubt_has_its_weight(
    change: dict[str, object], standing: Standing, words: str
) -> None:
    """One thing is not as asked, and the verdict says which."""
    verdict = judge(replace(SOUND, **change))  # type: ignore[arg-type]
    assert verdict.standing is standing
    assert words in " ".join(verdict.reasons)
    assert not verdict.finding  # the next run may do better


def test_who_dares_may_swap() -> None:
    """It was predicted, it was asked for, and it is told as an outcome."""
    dared = replace(SOUND, condition=Condition(too_large="try"), swapped_mb=300.0)
    assert judge(dared).standing is Standing.VALID
    assert judge(replace(SOUND, swapped_mb=2.0)).standing is Standing.VALID  # may be anybody's


def with_done(work: Work = WORK, source: Source = Source.PHONE, **changes: object) -> Evidence:
    """A sound run whose last word is another."""
    done = DONE.model_copy(update=changes)
    return replace(SOUND, effort=Effort(work, done, warmup=5, source=source))


@pytest.mark.parametrize(
    ("changes", "standing", "words"),
    [
        ({"steps": 3}, Standing.SUSPECT, "3 steps were measured"),
        ({"steps": 2}, Standing.SUSPECT, "too few steps to see whether the loss falls"),
        ({"loss_last": None}, Standing.VOID, "without telling its loss"),
        ({"loss_last": float("nan")}, Standing.VOID, "not finite"),
        ({"loss_first": float("inf")}, Standing.VOID, "not finite"),
        ({"loss_last": 2.3}, Standing.VOID, "did not fall: 2.3 at first, 2.3 at last"),
        ({"parameters_changed": False}, Standing.VOID, "without changing a parameter"),
        ({"moved": 5}, Standing.VOID, "1 of its 6 learned tensors did not move"),
        ({"learned": None}, Standing.VOID, "which of its tensors moved"),
        ({"parameters": 16}, Standing.VOID, "has 16 parameters, the catalogue states 235920"),
        ({"macs": 16}, Standing.VOID, "has 16 multiply-adds"),
        ({"macs": None}, Standing.VOID, "does not tell its multiply-adds"),
        ({"fallbacks": 2}, Standing.VOID, "another backend did 2"),
        ({"answer_error": 0.01}, Standing.VOID, "wrong by 0.01"),
    ],
)
def test_a_run_that_did_other_work_is_void(
    changes: dict[str, object], standing: Standing, words: str
) -> None:
    """Each gate by itself: everything else is as it should be."""
    verdict = judge(with_done(**changes))
    assert verdict.standing is standing
    assert words in " ".join(verdict.reasons)
    assert verdict.finding is (standing is Standing.VOID)  # again would be the same


def test_a_run_that_saw_no_sample_twice_cannot_show_a_falling_loss() -> None:
    """The losses are of other samples; that they are finite is all that can be asked."""
    daily = replace(WORK, batches=1000)
    assert judge(with_done(daily, loss_last=2.4)).standing is Standing.VALID
    assert judge(with_done(daily, loss_last=float("nan"))).standing is Standing.VOID


@pytest.mark.parametrize(
    ("error", "standing"),
    [(1e-6, Standing.VALID), (2e-5, Standing.VOID), (float("nan"), Standing.VOID)],
)
def test_a_product_has_to_be_right(error: float, standing: Standing) -> None:
    """Single precision may round; it may not be wrong."""
    counts = {"parameters": None, "macs": PRODUCT.macs, "answer_error": error}
    assert judge(with_done(PRODUCT, **counts)).standing is standing


def test_a_product_that_does_not_tell_its_error_is_void() -> None:
    """An answer that nobody checked is none."""
    verdict = judge(with_done(PRODUCT, parameters=None, macs=PRODUCT.macs))
    assert (verdict.standing, len(verdict.reasons)) == (Standing.VOID, 1)


@pytest.mark.parametrize("work", [WORK, PRODUCT])
def test_what_a_simulation_cannot_know_is_no_failure(work: Work) -> None:
    """It computes nothing, so it has no loss; the same silence voids what really ran."""
    simulated = replace(SOUND, effort=Effort(work, SILENT, 5, Source.SIMULATED))
    assert judge(simulated).standing is Standing.VALID
    for source in (Source.PHONE, Source.HOST, None):
        real = replace(SOUND, effort=Effort(work, SILENT, 5, source))
        assert judge(real).standing is Standing.VOID


def test_a_phone_without_a_thermometer_may_be_asked_for_no_temperature() -> None:
    """`any` asks for nothing; whoever asks for degrees gets no run without them."""
    blind = replace(SOUND, start_temp_c=None, temps_c=(), asked_khz={}, held_share=None)
    assert judge(blind).standing is Standing.VOID
    anyhow = Condition(freq="free", start_temp_max_c=None)
    assert judge(replace(blind, condition=anyhow)).standing is Standing.VALID


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


def test_a_canary_tells_nothing_on_free_or_hot_clocks() -> None:
    """There it would only show what the protocol measures anyway."""
    slower = Canary(1.0, 1.5, 1.0)
    assert judge(replace(SOUND, canary=slower, asked_khz={})).standing is Standing.VALID
    long = replace(SOUND, canary=slower, condition=ENDURANCE, span_s=600.0)
    assert judge(long).standing is Standing.VALID
