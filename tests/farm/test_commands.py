"""The rest of the command line: one grammar, and every change says what it did and how to undo."""

import json
import os
from pathlib import Path

import pytest

from orchestrator.app.lab_checks import Severity, judge_broker
from orchestrator.dispatch.central_broker import CentralBroker
from tests.farm.conftest import Farm, run_farm
from tests.farm.terminal import in_this_process
from workloads.lab_settings import Lab

NOOP = "farm: 1\nname: {name}\nworkload: noop\nphones: all\nrepeat: 1\n"


def call(farm: Farm, *words: str) -> tuple[int, str, str]:
    """A command on this farm: exit code, stdout, stderr."""
    return in_this_process(*words, "--lab", str(farm.lab.root))


def done(farm: Farm, *words: str) -> str:
    """A command that has to succeed; what it printed."""
    code, out, err = call(farm, *words)
    assert code == 0, f"{words}: {err}"
    return out + err


def test_a_phone_is_steered_and_every_change_can_be_undone(farm: Farm) -> None:
    serial = farm.idle()[0]
    short = serial[:-2]
    for words, says, undo in (
        (
            ("tag", short, "paper", "old"),
            "tags: old, paper",
            f"farm phone tag {serial} -old -paper",
        ),
        (
            ("tag", short, "-old", "-paper"),
            "tags: none",
            f"farm phone tag {serial} old paper",
        ),
        (("quarantine", short, "--why", "swollen"), "quarantined", f"farm phone release {serial}"),
        (("release", short), "gets runs again", f"farm phone quarantine {serial}"),
        (
            ("reserve", short, "--for", "lin", "--why", "demo"),
            "reserved for lin",
            "farm phone unreserve",
        ),
        (("unreserve", short), "gets runs again", f"farm phone reserve {serial}"),
    ):
        text = done(farm, "phone", *words)
        assert says in text
        assert f"undo with: {undo}" in text
        assert "undo" not in done(farm, "phone", *words), "twice is once"
    assert "swollen" not in done(farm, "phone", "show", serial)
    assert serial in done(farm, "audit", serial)


def test_a_dry_run_changes_nothing(farm: Farm) -> None:
    serial = farm.idle()[0]
    text = done(farm, "phone", "quarantine", serial, "--why", "x", "--dry-run")
    assert text.startswith("dry run: ")
    assert farm.phone(serial).health == "good"


def test_phones_are_listed_by_selector(farm: Farm) -> None:
    lines = done(farm, "phone", "list", "--select", "meizu* or model == 'xiaomi mi 9'").splitlines()
    assert len(lines) == 3
    for selector, code in (("soc == nothing*", 6), ("soc ==", 2)):
        assert code == call(farm, "phone", "list", "--select", selector)[0]


def test_a_sweep_is_steered_and_its_trials_are_shown(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "steered.yaml"
    file.write_text(NOOP.format(name="steered"))
    done(farm, "sweep", "submit", str(file))
    done(farm, "watch", "steered")
    assert "priority changed from 50 to 80" in done(farm, "sweep", "priority", "steered", "80")
    assert "paused" in done(farm, "sweep", "pause", "steered", "--why", "lunch")
    assert "lunch" in done(farm, "sweep", "show", "steered")
    assert "resumed" in done(farm, "sweep", "resume", "steered")
    assert "has no failed or blocked runs" in done(farm, "sweep", "retry", "steered")
    trials = done(farm, "trial", "list", "steered").splitlines()
    assert len(trials) == 7
    trial = trials[1].split("\t")[0]
    assert "1 done" in done(farm, "trial", "show", trial[:-2])
    assert "attempt 1" in done(farm, "trial", "logs", trial)
    assert json.loads(done(farm, "trial", "list", "steered", "--state", "failed", "--json")) == []
    code, _, err = call(farm, "trial", "show", "tr-")
    assert (code, "ambiguous" in err) == (2, True)


def test_hosts_are_listed_and_drained(farm: Farm) -> None:
    assert "host-a\tup\t3" in done(farm, "agent", "list")
    assert "undo with: farm agent undrain host-a" in done(farm, "agent", "drain", "host-a")
    assert "host-a\tdrained" in done(farm, "agent", "list")
    done(farm, "agent", "undrain", "host-a")
    code, _, err = call(farm, "agent", "drain", "nobody")
    assert (code, "there is no host" in err) == (2, True)


def test_the_doctor_finds_a_working_lab_well(farm: Farm) -> None:
    _, out, _ = call(farm, "doctor", "--json")
    found = {finding["what"]: finding["level"] for finding in json.loads(out)}
    assert {found[name] for name in ("broker", "store", "scheduler", "host host-a")} == {"ok"}


def test_the_doctor_says_what_helps_when_nothing_is_up(tmp_path: Path) -> None:
    made = run_farm("doctor", "--lab", tmp_path)
    assert made.returncode == 5
    assert "ERROR   broker" in made.stdout
    assert "what helps: start the lab: farm up" in made.stdout


@pytest.mark.parametrize(
    ("url", "is_open", "listening", "levels"),
    [
        ("unix:///lab/broker.sock", True, (), []),
        ("redis://127.0.0.1:6379/0", True, (), []),
        (
            "redis://127.0.0.1:6379/0",
            True,
            (6379,),
            [Severity.ERROR],
        ),  # it listens to others as well
        ("redis://192.0.2.7:6379/0", True, (), [Severity.ERROR]),
        ("redis://:secret@192.0.2.7:6379/0", False, (), [Severity.WARNING]),  # not encrypted
        ("rediss://:secret@192.0.2.7:6379/0", False, (), []),
    ],
)
def test_a_broker_that_takes_anybody_is_an_error(
    url: str, is_open: bool, listening: tuple[int, ...], levels: list[Severity]
) -> None:
    found = list(judge_broker(url, is_open, listening))
    assert levels == [finding.level for finding in found]
    assert not any("secret" in finding.text for finding in found)


def test_the_doctor_asks_the_broker_as_a_stranger_would(broker_url: str) -> None:
    broker = CentralBroker(broker_url)
    assert broker.allows_anonymous_access()
    broker._redis.config_set("requirepass", "secret")
    assert not broker.allows_anonymous_access()
    broker.close()


def test_settings_say_where_they_come_from(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text('[broker]\nurl = "redis://u:secret@db:1/0"\n')
    made = run_farm("config", "show", "--origin", "--lab", tmp_path)
    assert "secret" not in made.stdout
    assert f"broker.url\tredis://***@db:1/0\t{tmp_path / 'lab.toml'}" in made.stdout
    assert "agent.max_parallel\t60\tdefault" in made.stdout


def test_a_new_lab_folder_explains_its_settings_and_is_never_overwritten(tmp_path: Path) -> None:
    made = run_farm("init", tmp_path / "lab")
    assert made.returncode == 0, made.stderr
    written = (tmp_path / "lab" / "lab.toml").read_text()
    for line in ("[scheduler]", "# lease_timeout_s = 30.0", "# max_parallel = 60"):
        assert line in written
    assert "None" not in written
    live = written.replace("# lease_timeout_s", "lease_timeout_s").replace(
        "# max_parallel", "max_parallel"
    )
    (tmp_path / "lab" / "lab.toml").write_text(live)
    assert Lab.read(tmp_path / "lab", {}).settings.agent.max_parallel == 60
    for sweep in (tmp_path / "lab" / "sweeps").glob("*.yaml"):
        assert run_farm("sweep", "validate", sweep).returncode == 0, sweep
        break
    again = run_farm("init", tmp_path / "lab")
    assert (again.returncode, "nothing was changed" in again.stderr) == (7, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(shell: str) -> None:
    made = run_farm("completion", shell)
    assert (made.returncode, "_FARM_COMPLETE" in made.stdout) == (0, True)


def test_tab_knows_commands_and_sweeps(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_FARM_COMPLETE", "bash_complete")
    monkeypatch.setenv("FARM_LAB", str(farm.lab.root))
    for typed, wanted in (("farm sw", "sweep"), ("farm phone show V", farm.idle()[0])):
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
        assert wanted in run_farm().stdout, os.environ["COMP_WORDS"]


@pytest.mark.parametrize(
    ("topic", "word"),
    [("exit-codes", "130"), ("sweep-file", "matrix:"), ("selectors", "root and ram_mb >= 6000")],
)
def test_help_needs_no_network(topic: str, word: str) -> None:
    assert word in run_farm("help", topic).stdout
