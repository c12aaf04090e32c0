"""Names of core sets and clocks are resolved on phones of every layout."""

import pytest

from tests.builders import a_phone
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.phone_facts import Cluster, PhoneFacts, choose_clock, choose_cores

FLAGSHIP = a_phone()  # 4 little, 3 gold, 1 prime
SIX_AND_TWO = a_phone(
    clusters=(
        Cluster(policy=0, cpus=(0, 1, 2, 3, 4, 5), capacity=400, ladder_khz=(300000, 1804800)),
        Cluster(policy=6, cpus=(6, 7), capacity=1024, ladder_khz=(652800, 2323200)),
    )
)
BIG_FIRST = a_phone(  # the first four cores are not always the little ones
    clusters=(
        Cluster(policy=0, cpus=(0, 1), capacity=1024, ladder_khz=(500000, 2000000)),
        Cluster(policy=2, cpus=(2, 3, 4, 5), capacity=500, ladder_khz=(500000, 1500000)),
    )
)


@pytest.mark.parametrize(
    ("phone", "name", "mask"),
    [
        (FLAGSHIP, "big4", 0xF0),  # every core that is not little
        (FLAGSHIP, "big3", 0x70),  # cores of one kind first
        (FLAGSHIP, "big1", 0x10),
        (FLAGSHIP, "little2", 0x03),
        (FLAGSHIP, "prime", 0x80),
        (FLAGSHIP, "all8", 0xFF),
        (FLAGSHIP, "all2", 0xC0),  # the fastest first
        (FLAGSHIP, "mask:81", 0x81),
        (SIX_AND_TWO, "big2", 0xC0),
        (SIX_AND_TWO, "little6", 0x3F),
        (BIG_FIRST, "big2", 0x03),
        (BIG_FIRST, "little4", 0x3C),
    ],
)
def test_a_core_set_is_what_its_name_says(phone: PhoneFacts, name: str, mask: int) -> None:
    assert choose_cores(phone, name).mask == mask


@pytest.mark.parametrize(
    ("phone", "name", "text"),
    [
        (SIX_AND_TWO, "big4", "has 2 big cores; big4 needs 4"),
        (SIX_AND_TWO, "prime", "has no prime core"),
        (FLAGSHIP, "all9", "has 8 cores"),
        (FLAGSHIP, "mask:100", "has no cores mask:100"),
    ],
)
def test_cores_that_a_phone_lacks_are_rejected(phone: PhoneFacts, name: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        choose_cores(phone, name)


@pytest.mark.parametrize("name", ["big", "big0", "huge4", "0xf0", "mask:", "mask:f0; rm -rf /", ""])
def test_an_invalid_core_set_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="is not a core set"):
        choose_cores(FLAGSHIP, name)


LADDER = Cluster(
    policy=0, cpus=(0,), capacity=1, ladder_khz=(300000, 576000, 768000, 1017600, 1248000, 1804800)
)


@pytest.mark.parametrize(
    ("name", "khz"),
    [
        ("high", 1804800),  # the top
        ("mid", 1248000),  # nearest to 65 %
        ("low", 768000),  # nearest to 40 %, without the two idle clocks
        ("0.5", 1017600),
        ("1", 1804800),
        ("576000kHz", 576000),
        ("free", None),
    ],
)
def test_a_clock_is_a_real_step_of_the_ladder(name: str, khz: int | None) -> None:
    assert choose_clock(LADDER, name) == khz


def test_a_clock_that_the_ladder_lacks_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="no clock of 999999 kHz"):
        choose_clock(LADDER, "999999kHz")
