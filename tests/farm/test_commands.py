"""Commands that control phones, sweeps and hosts, and those that inspect a lab."""

import json
import os
from pathlib import Path

import pytest
import redis

from orchestrator.app.checks.check_finding import Severity
from orchestrator.app.checks.security_checks import judge_broker
from orchestrator.dispatch.central_broker import CentralBroker
from tests.farm.conftest import Farm, run_farm
from tests.farm.farm_command import run_in_process
from workloads.lab.settings import Lab

NOOP = "farm: 1\nname: {name}\nworkload: noop\nphones: all\nrepeat: 1\n"


def call(farm: Farm, *words: str) -> tuple[int, str, str]:
    """Run a command on this farm; return exit code, stdout and stderr."""
    return run_in_process(*words, "--lab", str(farm.lab.root))


def succeed(farm: Farm, *words: str) -> str:
    """Run a command that must succeed; return what it printed."""
    code, out, err = call(farm, *words)
    assert code == 0, f"{words}: {err}"
    return out + err


def test_every_change_of_a_phone_can_be_undone(farm: Farm) -> None:
    serial = farm.idle_phones()[0]
    prefix = serial[:-2]
    for words, change, undo in (
        (
            ("tag", prefix, "paper", "old"),
            "tags: old, paper",
            f"farm phone tag {serial} -old -paper",
        ),
        (
            ("tag", prefix, "-old", "-paper"),
            "tags: none",
            f"farm phone tag {serial} old paper",
        ),
        (("quarantine", prefix, "--why", "swollen"), "quarantined", f"farm phone release {serial}"),
        (("release", prefix), "gets runs again", f"farm phone quarantine {serial}"),
        (
            ("reserve", prefix, "--person", "lin", "--why", "demo"),
            "reserved for lin",
            f"farm phone reserve {serial} --off",
        ),
        (("reserve", prefix, "--off"), "gets runs again", f"farm phone reserve {serial}"),
    ):
        text = succeed(farm, "phone", *words)
        assert change in text
        assert f"undo with: {undo}" in text
        assert "undo" not in succeed(farm, "phone", *words), "a repeated change changes nothing"
    assert "swollen" not in succeed(farm, "phone", "show", serial)
    assert serial in succeed(farm, "lab", "audit", serial)


def test_a_dry_run_changes_nothing(farm: Farm) -> None:
    serial = farm.idle_phones()[0]
    text = succeed(farm, "phone", "quarantine", serial, "--why", "x", "--dry-run")
    assert text.startswith("dry run: ")
    assert farm.phone(serial).health == "good"


def test_phones_are_listed_by_selector(farm: Farm) -> None:
    text = succeed(farm, "phone", "list", "--select", "meizu* or model == 'xiaomi mi 9'")
    assert len(text.splitlines()) == 3
    for selector, code in (("soc == nothing*", 6), ("soc ==", 2)):
        assert call(farm, "phone", "list", "--select", selector)[0] == code


def test_a_sweep_is_controlled_and_its_trials_are_shown(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "controlled.yaml"
    file.write_text(NOOP.format(name="controlled"))
    succeed(farm, "sweep", "submit", str(file))
    succeed(farm, "watch", "controlled")
    text = succeed(farm, "sweep", "priority", "controlled", "80")
    assert "priority changed from 50 to 80" in text
    code, _, err = call(farm, "sweep", "pause", "controlled", "--why", "lunch")
    assert (code, "is finished; no run of it is left to pause" in err) == (2, True)
    assert "has no failed or blocked runs" in succeed(farm, "sweep", "retry", "controlled")
    trials = succeed(farm, "trial", "list", "controlled").splitlines()
    assert len(trials) == 7
    trial = trials[1].split("\t")[0]
    assert "1 done" in succeed(farm, "trial", "show", trial[:-2])
    assert "attempt 1" in succeed(farm, "logs", trial)
    for state in ("failed", "suspect", "void"):
        code, out, _ = call(farm, "trial", "list", "controlled", "--state", state, "--json")
        assert (code, json.loads(out)) == (6, [])
    code, _, err = call(farm, "trial", "show", "tr-")
    assert (code, "several trials" in err) == (2, True)


def test_hosts_are_listed_and_drained(farm: Farm) -> None:
    assert "host-a\tup\t3" in succeed(farm, "host", "list")
    text = succeed(farm, "host", "drain", "host-a", "--why", "new hub")
    assert "undo with: farm host drain host-a --off" in text
    hosts = {host["host"]: host for host in json.loads(succeed(farm, "host", "list", "--json"))}
    assert (hosts["host-a"]["state"], hosts["host-a"]["drain_reason"]) == ("drained", "new hub")
    assert abs(hosts["host-a"]["clock_offset_s"]) < 10
    succeed(farm, "host", "drain", "host-a", "--off")
    code, _, err = call(farm, "host", "drain", "host-x")
    assert (code, "there is no host" in err) == (2, True)


def test_the_doctor_finds_no_error_in_a_working_lab(farm: Farm) -> None:
    _, out, _ = call(farm, "doctor", "--json")
    levels = {finding["subject"]: finding["level"] for finding in json.loads(out)}
    assert {levels[name] for name in ("broker", "store", "scheduler", "host host-a")} == {"ok"}


def test_the_doctor_names_the_remedy_when_no_lab_is_up(tmp_path: Path) -> None:
    result = run_farm("doctor", "--lab", tmp_path)
    assert result.returncode == 5
    lines = result.stdout.splitlines()
    (index,) = [index for index, line in enumerate(lines) if line.startswith("ERROR   broker: ")]
    assert lines[index + 1] == f"        remedy: start the lab: farm up --lab {tmp_path}"


@pytest.mark.parametrize(
    ("url", "is_open", "listening", "levels"),
    [
        ("unix:///lab/broker.sock", True, (), []),
        ("redis://127.0.0.1:6379/0", True, (), []),
        # The port is open to other computers as well.
        ("redis://127.0.0.1:6379/0", True, (6379,), [Severity.ERROR]),
        ("redis://192.0.2.7:6379/0", True, (), [Severity.ERROR]),
        ("redis://:secret@192.0.2.7:6379/0", False, (), [Severity.WARNING]),  # not encrypted
        ("rediss://:secret@192.0.2.7:6379/0", False, (), []),
    ],
)
def test_a_broker_that_is_open_to_everyone_is_an_error(
    url: str, is_open: bool, listening: tuple[int, ...], levels: list[Severity]
) -> None:
    findings = list(judge_broker(url, is_open, listening))
    assert [finding.level for finding in findings] == levels
    assert not any("secret" in finding.text for finding in findings)


def test_the_doctor_finds_out_whether_the_broker_needs_a_password(broker_url: str) -> None:
    broker = CentralBroker(broker_url)
    assert broker.allows_anonymous_access()
    with redis.Redis.from_url(broker_url) as client:
        client.config_set("requirepass", "secret")
    assert not broker.allows_anonymous_access()
    broker.close()


def test_settings_are_shown_with_their_origin(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text('[broker]\nurl = "redis://u:hunter2@db:1/0"\n')
    result = run_farm("lab", "config", "--origin", "--lab", tmp_path)
    assert "hunter2" not in result.stdout
    assert f"broker.url\tredis://***@db:1/0\t{tmp_path / 'lab.toml'}" in result.stdout
    assert "agent.max_parallel\t60\tdefault" in result.stdout
    listed = json.loads(run_farm("lab", "config", "--json", "--lab", tmp_path).stdout)
    assert {item["origin"] for item in listed} == {str(tmp_path / "lab.toml"), "default"}


def test_a_new_lab_folder_explains_its_settings_and_is_never_overwritten(tmp_path: Path) -> None:
    result = run_farm("lab", "init", "--lab", tmp_path / "lab")
    assert result.returncode == 0, result.stderr
    template = (tmp_path / "lab" / "lab.toml").read_text()
    for line in ("[scheduler]", "# lease_timeout_s = 30.0", "# max_parallel = 60"):
        assert line in template
    assert "None" not in template
    uncommented = template.replace("# lease_timeout_s", "lease_timeout_s").replace(
        "# max_parallel", "max_parallel"
    )
    (tmp_path / "lab" / "lab.toml").write_text(uncommented)
    assert Lab.read(tmp_path / "lab", {}).settings.agent.max_parallel == 60
    for sweep in (tmp_path / "lab" / "sweeps").glob("*.yaml"):
        assert run_farm("sweep", "validate", sweep).returncode == 0, sweep
        break
    second = run_farm("lab", "init", "--lab", tmp_path / "lab")
    assert (second.returncode, "nothing was changed" in second.stderr) == (7, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(shell: str) -> None:
    result = run_farm("help", "completion", shell)
    assert (result.returncode, "_FARM_COMPLETE" in result.stdout) == (0, True)


def test_commands_and_phones_are_completed(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_FARM_COMPLETE", "bash_complete")
    monkeypatch.setenv("FARM_LAB", str(farm.lab.root))
    for typed, wanted in (("farm sw", "sweep"), ("farm phone show V", farm.idle_phones()[0])):
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
        assert wanted in run_farm().stdout, os.environ["COMP_WORDS"]


@pytest.mark.parametrize(
    ("topic", "word"),
    [("exit-codes", "130"), ("sweep-file", "matrix:"), ("selectors", "root and ram_mb >= 6000")],
)
def test_help_needs_no_network(topic: str, word: str) -> None:
    assert word in run_farm("help", topic).stdout
