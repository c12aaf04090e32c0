"""Lab folders with unusual names, and who can read what commands write."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.app.services.run_service import check_broker
from orchestrator.commands.output_file import open_output
from orchestrator.dispatch.central_broker import CentralBroker, SchedulerHeartbeat
from orchestrator.store.database import Database
from orchestrator.supervisor.embedded_broker import (
    QUEUE_FOLDER,
    embedded_broker,
    wait_for_broker,
)
from orchestrator.supervisor.process import stop_all
from workloads.lab.settings import Lab
from workloads.protocol.faults import BrokerDown


@pytest.mark.parametrize("name", ["a b\n?c#d%41é", "long" * 40])
def test_a_lab_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    lab = Lab.read(tmp_path / name, {})
    broker = embedded_broker(lab)
    try:
        broker.start()
        wait_for_broker(lab, broker)
        check_broker(lab)
    finally:
        stop_all([broker])
    database = Database(lab.store_url)
    database.migrate()
    database.close()
    assert lab.store_file.is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@contextmanager
def running_broker(lab: Lab) -> Iterator[CentralBroker]:
    """The broker of a lab, as `farm up` starts it."""
    process = embedded_broker(lab)
    try:
        process.start()
        wait_for_broker(lab, process)
        with CentralBroker(lab.broker_url) as broker:
            yield broker
    finally:
        stop_all([process])


def test_a_broker_whose_files_are_damaged_starts_without_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab.read(tmp_path / "lab", {})
    queue = lab.root / "broker" / QUEUE_FOLDER
    for _ in range(2):  # it starts with undamaged files
        with running_broker(lab) as broker:
            broker.publish_scheduler(SchedulerHeartbeat(sent_at=datetime.now(UTC)))
    assert caplog.messages == []
    for file in queue.iterdir():
        file.write_bytes(b"\0not a command\r\n" * 99)
    with running_broker(lab) as broker:
        broker.check()
    (message,) = caplog.messages
    (aside,) = queue.parent.glob(f"{QUEUE_FOLDER}.damaged-*")
    assert str(aside) in message
    with running_broker(lab):
        assert len(caplog.messages) == 1


def test_a_broker_that_cannot_start_keeps_its_files(tmp_path: Path) -> None:
    lab = Lab.read(tmp_path / "lab", {})
    with running_broker(lab):
        pass
    process = embedded_broker(lab)
    with (lab.root / "broker" / "broker.conf").open("a") as file:
        file.write("no-such-setting 1\n")
    process.start()
    with pytest.raises(BrokerDown, match="the broker ended"):
        wait_for_broker(lab, process)
    assert (lab.root / "broker" / QUEUE_FOLDER).is_dir()
    assert list((lab.root / "broker").glob("*damaged*")) == []


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o640)])
def test_an_output_file_is_as_open_as_the_umask_allows(
    tmp_path: Path, private: bool, mode: int
) -> None:
    before = os.umask(0o027)
    try:
        with open_output(str(tmp_path / "x.html"), "x.html", private) as stream:
            stream.write(b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.html").stat().st_mode) == mode
    with pytest.raises(KeyboardInterrupt), open_output(str(tmp_path / "y"), "y") as stream:
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["x.html"]
