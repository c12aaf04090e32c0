"""What a distant screen is sent: all of the lab once, then what changed."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.app.app_errors import ApiDown
from orchestrator.app.lab_changes import (
    STATES_KEPT,
    RemotePoller,
    apply_change,
    difference,
    read_lab_changes,
)
from orchestrator.app.lab_status import LabPoller
from tests.api.conftest import ApiLab


def draw_json(rng: random.Random, depth: int = 4) -> Any:
    """Draw a JSON value, with null, empty members and lists of different lengths."""
    kinds = 6 if depth else 4
    match rng.randrange(kinds):
        case 0:
            return rng.choice([None, True, False, 0, 1])
        case 1 | 2:
            return rng.choice([1.5, "", "text", -3])
        case 3:
            return []
        case 4:
            return [draw_json(rng, depth - 1) for _ in range(rng.randrange(4))]
        case _:
            return {
                name: draw_json(rng, depth - 1) for name in rng.sample("abcde", rng.randrange(5))
            }


def test_a_change_leads_from_any_value_to_any_other() -> None:
    rng = random.Random(3)
    for _ in range(1500):
        old, new = draw_json(rng), draw_json(rng)
        sent = json.loads(json.dumps(difference(old, new)))
        assert json.dumps(apply_change(old, sent), sort_keys=True) == json.dumps(
            new, sort_keys=True
        )
        assert not difference(old, json.loads(json.dumps(old)))


def test_a_distant_screen_sees_the_lab_and_is_sent_only_what_changed(served: ApiLab) -> None:
    with served.here() as here, served.remote() as lab:
        poller = RemotePoller(lab, None)
        first, near = poller.poll(), LabPoller(here, None, with_values=True).poll()
        assert first == replace(near, at=first.at)
        assert first.phones[0].facts.model
        whole = read_lab_changes(lab)
        again = read_lab_changes(lab, None, whole.version)
        assert len(json.dumps(again.change)) < 100 < len(json.dumps(whole.change)) / 10
        second = poller.poll()
        assert second == replace(near, at=second.at)
        assert second.phones[0].facts is first.phones[0].facts
        poller.follow("sw-none")
        assert poller.poll().phones == first.phones


def test_an_unknown_version_is_sent_everything(served: ApiLab) -> None:
    with served.remote() as lab:
        for version in ("", "x", "../..", "0-" * 500):
            (state,) = read_lab_changes(lab, None, version).change
            assert set(state["phones"]) == {"VM16T0001", "VMI90001"}


def test_followed_sweeps_do_not_fill_the_memory(served: ApiLab) -> None:
    with served.here() as lab:
        for number in range(20):
            read_lab_changes(lab, f"sw-{number}")
        assert len(lab.change_logs) == 8
        log = lab.change_logs["sw-19"]
        for _ in range(STATES_KEPT + 5):
            log._poll()
        assert len(log._states) == STATES_KEPT


def test_an_answer_that_cannot_be_applied_is_one_sentence(served: ApiLab) -> None:
    with served.remote() as lab:
        poller = RemotePoller(lab, None)
        poller.poll()
        poller._state = {"phones": []}
        with pytest.raises(ApiDown, match="cannot be read; use the same version"):
            poller.poll()
        assert len(poller.poll().phones) == 2  # all of it was sent again
