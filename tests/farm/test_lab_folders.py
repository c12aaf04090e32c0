"""Lab folders with unusual names, and who can read what commands write."""

import os
import stat
from pathlib import Path

import pytest

from orchestrator.app.services.run_service import check_broker
from orchestrator.commands.output_file import open_output
from orchestrator.store.database import Database
from orchestrator.supervisor.embedded_broker import embedded_broker, wait_for_broker
from orchestrator.supervisor.process import stop_all
from workloads.lab.settings import Lab


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
