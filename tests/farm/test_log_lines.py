"""The logs of agents and services: one line per attempt, phone and command, with their values."""

import re
from pathlib import Path

from orchestrator.store.sweep_queries import sweep_summaries
from tests.farm.conftest import Farm, wait_for
from tests.farm.test_trouble import submit

SWEEP = """\
farm: 1
name: logged
workload: noop
phones: [VM16T*]
repeat: 2
"""
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([A-Z]+) (farm\.[a-z]+) (.*)")
VALUE = re.compile(r"(\w+)=('[^']*'|\S+)")


def lines(farm: Farm, text: str, service: str = "agent-*") -> list[dict[str, str]]:
    """Return the values of every log line of a service that begins with a text."""
    content = "".join(
        file.read_text() for file in farm.lab.log_file("x").parent.glob(f"{service}.log")
    )
    matches = [match for line in content.splitlines() if (match := LINE.fullmatch(line))]
    return [dict(VALUE.findall(match[3])) for match in matches if match[3].startswith(text)]


def test_every_attempt_has_a_line_at_its_start_and_one_at_its_end(
    farm: Farm, tmp_path: Path
) -> None:
    sweep = submit(farm, tmp_path, SWEEP)
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].finished, "the sweep finishes")
    (serial,) = [name for name in (phone.serial for phone in farm.phones()) if "VM16T" in name]
    started = [line for line in lines(farm, "attempt started ") if line["phone"] == serial]
    ended = [line for line in lines(farm, "attempt ended ") if line["phone"] == serial]
    assert len(started) >= 2
    assert {line["run"] for line in ended} >= {line["run"] for line in started[-2:]}
    assert ended[-1]["outcome"] == "valid"
    assert float(ended[-1]["seconds"]) >= 0
    assert ended[-1]["host"] in {"host-a", "host-b"}


def test_phones_and_commands_are_logged(farm: Farm) -> None:
    serial = farm.idle_phones()[0]
    assert serial in {line["phone"] for line in lines(farm, "phone connected ")}
    farm.command("phone", "check", serial)
    wait_for(
        lambda: (
            {"command": "check", "phone": serial, "outcome": "ok"} in lines(farm, "command done ")
        ),
        "the command is in the log",
    )


def test_every_delivery_has_a_line(farm: Farm, tmp_path: Path) -> None:
    sweep = submit(farm, tmp_path, SWEEP.replace("logged", "delivered"))
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].finished, "the sweep finishes")
    stored = lines(farm, "delivery stored ", "ingest")
    assert {host for line in stored for host in line["host"].split(",")} <= {"host-a", "host-b"}
    assert any("accepted:" in line["reports"] for line in stored)
    assert all(float(line["seconds"]) >= 0 and int(line["parcels"]) > 0 for line in stored)
