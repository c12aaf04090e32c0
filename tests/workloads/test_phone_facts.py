"""Names turn into cores and clocks, on every shape of phone."""

import pytest

from tests.builders import a_phone
from workloads.fault import Refused
from workloads.phone import Cluster, PhoneFacts, choose_clock, choose_cores

FLAGSHIP = a_phone()  # 4 little, 3 gold, 1 prime
SIX_AND_TWO = a_phone(
    clusters=(
        Cluster(policy=0, cpus=(0, 1, 2, 3, 4, 5), capacity=400, ladder_khz=(300000, 1804800)),
        Cluster(policy=6, cpus=(6, 7), capacity=1024, ladder_khz=(652800, 2323200)),
    )
)
BIG_FIRST = a_phone(  # nothing may rest on 'the first four are small'
    clusters=(
        Cluster(policy=0, cpus=(0, 1), capacity=1024, ladder_khz=(500000, 2000000)),
        Cluster(policy=2, cpus=(2, 3, 4, 5), capacity=500, ladder_khz=(500000, 1500000)),
    )
)


@pytest.mark.parametrize(
    ("phone", "name", "mask"),
    [
        (FLAGSHIP, "big4", 0xF0),  # every core that is not little
        (FLAGSHIP, "big3", 0x70),  # like cores before the odd one
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
    assert mask == choose_cores(phone, name).mask


@pytest.mark.parametrize(
    ("phone", "name", "says"),
    [
        (SIX_AND_TWO, "big4", "has 2 big cores, big4 asks for 4"),
        (SIX_AND_TWO, "prime", "has no prime core"),
        (FLAGSHIP, "all9", "has 8 cores"),
        (FLAGSHIP, "mask:100", "has no cores mask:100"),
    ],
)
def test_cores_that_a_phone_lacks_are_refused_in_a_sentence(
    phone: PhoneFacts, name: str, says: str
) -> None:
    with pytest.raises(Refused, match=says):
        choose_cores(phone, name)


@pytest.mark.parametrize("name", ["big", "big0", "huge4", "0xf0", "mask:", "mask:f0; rm -rf /", ""])
def test_a_name_that_is_no_core_set_is_refused(name: str) -> None:
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
        ("low", 768000),  # nearest to 40 %, without the two parking steps
        ("0.5", 1017600),
        ("1", 1804800),
        ("576000kHz", 576000),
        ("free", None),
    ],
)
def test_a_clock_is_a_real_step_of_the_ladder(name: str, khz: int | None) -> None:
    assert khz == choose_clock(LADDER, name)


def test_a_step_that_the_ladder_lacks_is_refused() -> None:
    with pytest.raises(Refused, match="no step of 999999 kHz"):
        choose_clock(LADDER, "999999kHz")
