"""What a sweep waits for, when that is reported, and when watching ends."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.app.lab_status import LabView
from orchestrator.app.screen.phone_state_text import KnownPhone
from orchestrator.app.screen.waiting_sweep import (
    WAIT_MIN_S,
    SweepWait,
    Wait,
    absent_phones,
    find_obstacles,
    needs_person,
    obstacle_text,
)
from orchestrator.planning.states import Health, SweepState
from tests.tui.sample_screens import LEASE, NOW, a_known_phone, a_snapshot

ILL = a_known_phone("PH1", "idle", health=Health.QUARANTINED, queued=3)
DONE = a_known_phone("PH2", "idle")
AWAY = a_known_phone("PH3", "away", queued=1)
LATER = (NOW + timedelta(hours=1)).timestamp()


def a_view(*phones: KnownPhone, age_s: float = 0.0, **changes: Any) -> LabView:
    """Build the view of a lab whose followed sweep has runs left."""
    return replace(a_snapshot(*phones, age_s=age_s).view, **changes)


@pytest.mark.parametrize(
    ("phone", "wait", "is_final"),
    [
        (ILL, Wait.QUARANTINED, True),
        (replace(ILL, status=AWAY.status), Wait.QUARANTINED, True),  # a cable would not help
        (AWAY, Wait.AWAY, False),  # it may come back
        (a_known_phone("PH4", "idle", health=Health.HELD, queued=1), Wait.HELD, False),
        (a_known_phone("PH4", "idle", reserved_by="bo", queued=1), Wait.RESERVED, True),
        (
            a_known_phone("PH4", "idle", reserved_by="bo", reserved_until=LATER, queued=1),
            Wait.RESERVED,
            False,
        ),
        (a_known_phone("PH4", "idle", host="host-z", queued=1), Wait.DRAINED, False),
    ],
)
def test_an_obstacle_of_each_kind(phone: KnownPhone, wait: Wait, is_final: bool) -> None:
    obstacles = find_obstacles(a_view(phone, DONE, drained=("host-z",)))
    assert [(item.phone, item.wait) for item in obstacles] == [(phone.serial, wait)]
    assert needs_person(obstacles) == is_final
    assert phone.serial in obstacle_text(obstacles)
    assert (
        needs_person(find_obstacles(a_view(replace(ILL, serial="PH0"), phone, drained=("host-z",))))
        == is_final
    )


@pytest.mark.parametrize(
    "other",
    [
        a_known_phone("PH4", "idle", queued=1),
        a_known_phone("PH4", "idle", reserved_by="bo", reserved_until=1.0, queued=1),  # it is over
        a_known_phone("PH4", "busy", health=Health.QUARANTINED, queued=1, lease=LEASE),
    ],
)
def test_a_sweep_continues_as_long_as_one_phone_works(other: KnownPhone) -> None:
    assert find_obstacles(a_view(ILL, other)) == []
    assert find_obstacles(a_view(DONE)) == []
    assert other.serial not in absent_phones([replace(other, health=Health.GOOD)], NOW, ())


def test_a_paused_sweep_needs_a_person() -> None:
    view = a_view(AWAY)
    paused = replace(view, sweeps=(replace(view.sweeps[0], state=SweepState.PAUSED),))
    assert needs_person(find_obstacles(paused))
    assert obstacle_text(find_obstacles(paused)).startswith("the sweep is paused; continue it")


def test_a_wait_is_reported_once_and_only_after_some_time() -> None:
    wait, ages = SweepWait(), (100.0, 100.0 - WAIT_MIN_S / 2, 100.0 - WAIT_MIN_S, 0.0)
    told = [wait.news(a_view(AWAY, ILL, age_s=age)) for age in ages]
    assert [bool(text) for text in told] == [False, False, True, False]
    assert "PH3: not connected" in told[2]
    assert "PH1: quarantined with runs left; release them" in told[2]
    stuck = SweepWait()
    assert [stuck.is_stuck(a_view(ILL, age_s=age)) for age in ages] == [False, False, True, True]
    assert not stuck.is_stuck(a_view(DONE))
    assert not stuck.is_stuck(a_view(ILL)), "the wait begins anew"
