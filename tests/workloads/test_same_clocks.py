"""Which levels are one clock, on the ladders of real phones, of virtual phones and of GPUs."""

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

import pytest

from agent.phone.facts_file import read_facts_file, reading_of
from agent.phone.probe import interpret_reading
from agent.virtual.profiles import load_profile, profile_ids
from tests.builders import a_phone
from tests.corpus import FILES
from workloads.protocol.condition import Condition
from workloads.protocol.phone_facts import Cluster, Gpu, PhoneFacts, choose_clocks, choose_cores
from workloads.protocol.same_clocks import (
    ClockedCell,
    SameClock,
    cell_on_phone,
    same_clock_texts,
    same_clocks,
)

LEVELS = ("low", "mid", "high")


def cells_of(
    facts: PhoneFacts, conditions: Iterable[Condition], case: str = "case"
) -> list[ClockedCell]:
    """Return the cells that a phone can run."""
    found = (cell_on_phone(facts, case, condition) for condition in conditions)
    return [cell for cell in found if cell is not None]


def found_on(
    facts: PhoneFacts, levels: Sequence[str], *cores: str
) -> list[tuple[str, tuple[str, ...], tuple[int, ...]]]:
    """Return core set, levels and clocks of every coincidence."""
    conditions = [Condition(cores=one, freq=level) for one, level in product(cores, levels)]
    found = same_clocks(cells_of(facts, conditions))
    return [(same.cores, same.levels, same.clocks_khz) for same in found]


def of_profile(name: str) -> PhoneFacts:
    """Return a virtual phone as far as cores and clocks are concerned."""
    profile = load_profile(name)
    gpu = profile.gpu
    return a_phone(
        serial=name,
        model=profile.name,
        clusters=tuple(
            Cluster(
                policy=part.cpus[0],
                cpus=tuple(part.cpus),
                capacity=part.capacity,
                ladder_khz=tuple(part.ladder_khz),
            )
            for part in profile.cluster
        ),
        gpu=Gpu(name=gpu.name, folder="/g", ladder_khz=tuple(gpu.ladder_khz), writable=True)
        if gpu
        else None,
    )


def test_low_and_mid_of_the_mate_30_are_one_clock_on_two_of_its_clusters() -> None:
    found = found_on(of_profile("huawei-mate-30"), LEVELS, "little4", "big2", "big4", "all8")
    # The other big cores have more steps: a set that contains them has two clocks.
    assert found == [
        ("little4", ("low", "mid"), (1_130_000,)),
        ("big2", ("low", "mid"), (1_280_000,)),
    ]


@pytest.mark.parametrize("name", ["meizu-16t", "xiaomi-mi-9", "samsung-s8-plus", "huawei-honor-8"])
def test_levels_that_differ_are_not_named(name: str) -> None:
    assert found_on(of_profile(name), [*LEVELS, "free", "fixed"], "little2", "big2", "all4") == []


@pytest.mark.parametrize(
    ("levels", "same"),
    [
        (("high", "1.0", "2090000kHz"), [("1.0", "2090000kHz", "high")]),
        (("0.6", "0.62", "0.9"), [("0.6", "0.62")]),  # two fractions, one nearest step
        (
            ("0.6", "0.9", "1280000kHz", "1830000kHz"),
            [("0.6", "1280000kHz"), ("0.9", "1830000kHz")],
        ),
        (("free", "fixed"), []),  # no clock is set, by two different means
        (("free", "high"), []),
    ],
)
def test_fractions_and_exact_clocks_are_compared_by_their_step(
    levels: tuple[str, ...], same: list[tuple[str, ...]]
) -> None:
    found = found_on(of_profile("huawei-mate-30"), levels, "big2")
    assert [levels for _, levels, _ in found] == same


def test_levels_of_the_gpu_are_compared_too() -> None:
    facts = of_profile("oneplus-6")
    conditions = [Condition(gpu_freq=level) for level in (*LEVELS, "free")]
    (same,) = same_clocks(cells_of(facts, [*conditions, Condition()]))
    assert (same.setting, same.levels, same.cores) == ("gpu_freq", ("low", "mid"), "")
    assert same.text == "GPU: 0.414 GHz"
    read_only = facts.model_copy(
        update={"gpu": facts.gpu and facts.gpu.model_copy(update={"writable": False})}
    )
    assert cells_of(read_only, conditions[:3]) == []


def test_both_clocks_may_change_together() -> None:
    facts = of_profile("huawei-mate-30")
    pairs = [("low", "0.9"), ("mid", "high")]
    conditions = [Condition(cores="big2", freq=freq, gpu_freq=gpu) for freq, gpu in pairs]
    assert same_clocks(cells_of(facts, conditions)) == (), "the GPU makes two cells"
    conditions[0] = Condition(cores="big2", freq="low", gpu_freq="1.0")
    found = same_clocks(cells_of(facts, conditions))
    assert [same.setting for same in found] == ["freq", "gpu_freq"]


def test_cells_that_differ_in_something_else_are_different_cells() -> None:
    facts = of_profile("huawei-mate-30")
    low, mid = (Condition(cores="big2", freq=freq) for freq in ("low", "mid"))
    hot = mid.model_copy(update={"start_temp_max_c": 40.0})
    assert same_clocks(cells_of(facts, [low, hot])) == ()
    assert same_clocks([*cells_of(facts, [low], "a"), *cells_of(facts, [mid], "b")]) == ()
    other = facts.model_copy(update={"serial": "other"})
    assert same_clocks([*cells_of(facts, [low]), *cells_of(other, [mid])]) == ()


@pytest.mark.parametrize("name", profile_ids())
def test_every_profile_names_exactly_the_levels_with_equal_clocks(name: str) -> None:
    check_against_the_definition(of_profile(name))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_phone_of_the_corpus_names_exactly_the_levels_with_equal_clocks(path: Path) -> None:
    check_against_the_definition(
        interpret_reading(reading_of(read_facts_file(path)), "captured", "not started")
    )


def check_against_the_definition(facts: PhoneFacts) -> None:
    """Levels are named if and only if every cluster of the cores gets equal clocks."""
    for cores in ("little1", "big1", "big2", "all4", "prime"):
        named = {
            pair
            for _, levels, _ in found_on(facts, LEVELS, cores)
            for pair in product(levels, levels)
        }
        for first, second in product(LEVELS, LEVELS):
            cells = cells_of(facts, [Condition(cores=cores, freq=name) for name in (first, second)])
            if first == second or len(cells) < 2:
                continue
            chosen = choose_cores(facts, cores)
            equal = choose_clocks(facts, chosen, first) == choose_clocks(facts, chosen, second)
            assert ((first, second) in named) is equal


def test_a_phone_whose_cores_are_unknown_has_no_cells() -> None:
    assert cell_on_phone(a_phone(clusters=()), "case", Condition()) is None


def test_a_text_names_levels_once_with_all_their_phones() -> None:
    found = [
        SameClock("freq", ("0.6", "low", "mid"), f"S{number}", "Model A", cores, (khz,))
        for number in (1, 2)
        for cores, khz in (("big2", 1_280_000), ("little4", 1_130_000))
    ]
    found += [
        SameClock("freq", ("0.6", "low", "mid"), "S3", "Model B", "big2", (998_400, 1_785_600))
    ]
    found += [SameClock("gpu_freq", ("low", "mid"), "S3", "Model B", "", (414_000,))]
    first, second = same_clock_texts(found)
    assert "Model B (big2: 0.9984+1.7856 GHz)" in first
    assert first.count("Model") == 2, "two phones of one model are named once"
    assert first.startswith("freq: 0.6, low and mid are the same clock on Model ")
    assert second == "gpu_freq: low and mid are the same clock on Model B (GPU: 0.414 GHz)"


def test_a_text_about_many_phones_stays_short() -> None:
    found = [
        SameClock("freq", ("low", "mid"), f"S{number}", f"Model {number}", "big2", (1_280_000,))
        for number in range(50)
    ]
    (text,) = same_clock_texts(found)
    assert text.endswith("and 44 more")
    assert len(text) < 400
