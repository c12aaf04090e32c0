"""Lists, status, doctor, screen, page and API say the same of a lab: one situation, one word."""

import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.app.control_phones import list_phones
from orchestrator.app.control_sweeps import show_sweep
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import read_lab_status
from orchestrator.app.remote.operation_types import types_of
from orchestrator.app.screen.lab_page import page_content
from orchestrator.app.screen.lab_snapshot import LabSnapshot
from orchestrator.planning.states import PhoneAvailability
from tests.analysis.builders import a_trial_of, measured
from tests.farm.quiet_lab import QuietLab, quiet_lab
from tests.stored_runs import store_runs
from workloads.protocol.messages import PhoneStatus
from workloads.protocol.verdict import Validity

PHONE, HOST = "PX6-01", "bench-1"
NEED_HELP = (PhoneAvailability.AWAY, PhoneAvailability.HELD, PhoneAvailability.QUARANTINED)
NOOP = "farm: 1\nname: more\nworkload: noop\nphones: all\nrepeat: 2\n"


@pytest.fixture(scope="module")
def quiet() -> Iterator[QuietLab]:
    """A lab with one phone, which has measured one sweep."""
    with tempfile.TemporaryDirectory() as folder, quiet_lab(Path(folder)) as lab:
        store_runs(lab.store, a_trial_of(10.0, 4, serial=PHONE), "measured")
        yield lab


def call(lab: QuietLab, *words: str) -> str:
    """Run a command that succeeds; return its output."""
    code, out, err = lab.command(*words)
    assert code == 0, f"{words}: {err}"
    return out


def words_of_phone(lab: QuietLab) -> dict[str, set[str]]:
    """Return what every surface calls the phone."""
    connection = LabConnection(lab.lab, "tester")
    view = read_lab_status(connection)
    page = page_content(LabSnapshot(view), datetime.now(UTC))
    api = types_of(list_phones).result.dump_python(list_phones(connection), mode="json")
    _, listed, _ = lab.command("phone", "list")
    row = dict(zip(*(line.split("\t") for line in listed.splitlines()[:2]), strict=True))
    _, screen, _ = lab.command("watch", "--once", "--size", "160x30")
    line = next(each for each in screen.splitlines() if PHONE in each)
    return {
        "list": {row["STATE"]},
        "api": {api[0]["availability"]},
        "status": {*json.loads(call(lab, "status", "--json"))["phones"]},
        "page": {page["phones"][PHONE][3].lower().replace("quarant.", "quarantined")},
        "screen": {
            word for word in PhoneAvailability if word[:7] in line.lower().split("  queued")[0]
        },
    }


def problems_of_phone(lab: QuietLab) -> dict[str, bool]:
    """Return which surfaces say that something is wrong with the phone."""
    page = page_content(LabSnapshot(read_lab_status(LabConnection(lab.lab))), datetime.now(UTC))
    named = {name for _, _, phones in page["problems"] for name in phones.split(", ")}
    model = page["phones"][PHONE][0]
    status = json.loads(call(lab, "status", "--json"))["problems"]
    doctor = json.loads(lab.command("doctor", "--json")[1])
    return {
        "status": any(PHONE in item["subject"] for item in status),
        "doctor": any(PHONE in item["subject"] and item["level"] != "ok" for item in doctor),
        "page": model in named,
    }


SITUATIONS: dict[PhoneAvailability, tuple[tuple[str, ...], tuple[str, ...]]] = {
    PhoneAvailability.IDLE: ((), ()),
    PhoneAvailability.AWAY: ((), ()),
    PhoneAvailability.QUARANTINED: (
        ("phone", "quarantine", PHONE, "--why", "swollen"),
        ("phone", "release", PHONE),
    ),
    PhoneAvailability.RESERVED: (
        ("phone", "reserve", PHONE, "--person", "lin"),
        ("phone", "reserve", PHONE, "--off"),
    ),
    PhoneAvailability.DRAINED: (
        ("host", "drain", HOST, "--why", "hub"),
        ("host", "drain", HOST, "--off"),
    ),
    PhoneAvailability.RETIRED: (
        ("phone", "retire", PHONE, "--why", "old"),
        ("phone", "release", PHONE),
    ),
}


@pytest.mark.parametrize("word", SITUATIONS)
def test_every_surface_has_the_same_word_for_a_phone(
    quiet: QuietLab, word: PhoneAvailability
) -> None:
    enter, leave = SITUATIONS[word]
    here = (PhoneStatus(serial=PHONE, state="idle"),)
    quiet.send(*(() if word is PhoneAvailability.AWAY else here), host=HOST)
    if enter:
        call(quiet, *enter)
    try:
        found = words_of_phone(quiet)
        assert found == {surface: {word.value} for surface in found}
        expected = word in NEED_HELP
        assert problems_of_phone(quiet) == dict.fromkeys(("status", "doctor", "page"), expected)
    finally:
        if leave:
            call(quiet, *leave)


def test_a_phone_that_its_host_cannot_use_is_a_problem_everywhere(quiet: QuietLab) -> None:
    quiet.send(host=HOST, unusable=PHONE)
    assert problems_of_phone(quiet) == dict.fromkeys(("status", "doctor", "page"), True)
    assert "Allow" in call(quiet, "status")


def sweep_states(lab: QuietLab, name: str) -> set[str]:
    """Return the state of a sweep on every surface."""
    view = read_lab_status(LabConnection(lab.lab))
    page = page_content(LabSnapshot(view), datetime.now(UTC))
    listed = json.loads(call(lab, "sweep", "list", "--json"))
    shown = json.loads(call(lab, "status", "--json"))["sweeps"]
    return {
        item["state"]
        for items in (page["sweeps"], listed, shown)
        for item in items
        if item["name"] == name
    }


def test_every_surface_has_the_same_word_for_a_sweep(quiet: QuietLab, tmp_path: Path) -> None:
    quiet.send(PhoneStatus(serial=PHONE, state="idle"), host=HOST)
    assert sweep_states(quiet, "measured") == {"finished"}
    code, _, err = quiet.command("sweep", "cancel", "measured")
    assert (code, "is finished; no run of it is left to cancel" in err) == (2, True)
    (tmp_path / "more.yaml").write_text(NOOP)
    call(quiet, "sweep", "submit", str(tmp_path / "more.yaml"))
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("active", lambda: None),
        ("paused", lambda: call(quiet, "sweep", "pause", "more", "--why", "lunch")),
        ("cancelled", lambda: call(quiet, "sweep", "cancel", "more")),
    )
    for state, act in steps:
        act()
        assert sweep_states(quiet, "more") == {state}


def test_an_unknown_workload_is_not_queued(quiet: QuietLab, tmp_path: Path) -> None:
    (tmp_path / "unknown.yaml").write_text(NOOP.replace("noop", "nosuch"))
    code, _, err = quiet.command("sweep", "submit", str(tmp_path / "unknown.yaml"))
    assert (code, "unknown workload 'nosuch'" in err) == (3, True)


def test_a_suspect_run_counts_nowhere(quiet: QuietLab) -> None:
    store_runs(quiet.store, a_trial_of(10.0, 2, serial=PHONE, validity=Validity.SUSPECT), "doubt")
    (listed,) = (
        item
        for item in json.loads(call(quiet, "sweep", "list", "--json"))
        if item["name"] == "doubt"
    )
    assert listed["left_out"]["suspect"] == 2
    assert "2 suspect" in call(quiet, "sweep", "show", "doubt")
    trials = json.loads(call(quiet, "trial", "list", "doubt", "--state", "suspect", "--json"))
    assert len(trials) == 1


def test_a_run_is_shown_by_its_headline_metrics_if_it_has_one(quiet: QuietLab) -> None:
    runs = [measured(PHONE, step, repeat=i, loss_last=0.5) for i, step in enumerate((10.0, None))]
    sweep = store_runs(quiet.store, runs, "headlines")
    for headlines, of_first in ((False, {"step_ms", "loss_last"}), (True, {"step_ms"})):
        shown = show_sweep(LabConnection(quiet.lab), sweep, headlines).runs
        assert [set(run.metrics) for run in shown] == [of_first, {"loss_last"}]
    assert "10.0" in call(quiet, "sweep", "show", sweep)
