"""A lab with stored results, a real broker, and the API as its own process."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.manage_tokens import add_token
from orchestrator.app.operation import Role
from orchestrator.app.remote.api_client import RemoteLab
from orchestrator.cli import farm
from orchestrator.store.database import Database
from orchestrator.supervisor.embedded_broker import embedded_broker, wait_for_broker
from orchestrator.supervisor.process import ServiceProcess, service_command, stop_all
from tests.analysis.builders import a_trial_of, endurance
from tests.export.telemetry_blob import a_blob
from tests.farm.conftest import wait_for
from tests.stored_runs import store_runs
from workloads.lab.settings import Lab


@dataclass
class ApiLab:
    """A lab that is served, and the tokens of three people."""

    lab: Lab
    url: str
    tokens: dict[Role, str]
    process: ServiceProcess

    @property
    def address(self) -> tuple[str, int]:
        """The address of the port."""
        host, _, port = self.lab.settings.api.listen.rpartition(":")
        return host, int(port)

    def here(self) -> LabConnection:
        """Connect to the lab itself."""
        return LabConnection(self.lab, "local")

    def remote(self, role: Role = Role.VIEWER) -> LabConnection:
        """Connect to the API."""
        empty = Lab.read(self.lab.root / "elsewhere", {})
        return LabConnection(empty, "nobody", RemoteLab(self.url, self.tokens[role]))

    def run(self, *words: str | Path, role: Role | None = None, text: str | None = None) -> Result:
        """Run a command, on the lab itself or with a token."""
        variables: dict[str, str | None] = {"FARM_LAB": str(self.lab.root)}
        if role is not None:
            variables = {
                "FARM_LAB": str(self.lab.root / "elsewhere"),
                "FARM_API": self.url,
                "FARM_TOKEN": self.tokens[role],
            }
        arguments = [str(word) for word in words]
        return CliRunner().invoke(farm, arguments, text, variables, standalone_mode=False)


def free_port() -> int:
    """Return a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def store_results(lab: Lab) -> None:
    """Store a finished sweep of two phones."""
    database = Database(lab.store_url)
    database.migrate()
    runs = [
        *a_trial_of(10.0, 4, serial="VM16T0001", energy_per_step_mj=3.0),
        *a_trial_of(14.0, 4, serial="VMI90001", energy_per_step_mj=4.0),
        endurance("VM16T0001", 12.0),
    ]
    store_runs(database, runs, "small", {(run.trial, run.repeat): a_blob() for run in runs})
    database.close()


def is_open(address: tuple[str, int]) -> bool:
    """Return whether a program listens."""
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiLab]:
    """A lab with results that is served by `farm service api`."""
    root = tmp_path_factory.mktemp("api") / "lab"
    root.mkdir()
    address = ("127.0.0.1", free_port())
    settings = f'[api]\nlisten = "127.0.0.1:{address[1]}"\nupload_mb_max = 1\n'
    (root / "lab.toml").write_text(settings)
    lab = Lab.read(root, {})
    store_results(lab)
    broker = embedded_broker(lab)
    api = ServiceProcess(
        "api", service_command("service", "api", "--lab", root), lab.log_file("api")
    )
    try:
        broker.start()
        wait_for_broker(lab, broker)
        api.start()
        wait_for(lambda: is_open(address) or not api.alive, "the API listens")
        with LabConnection(lab, "root") as connection:
            secrets = {role: add_token(connection, f"a {role}", role, 1).secret for role in Role}
        yield ApiLab(lab, f"http://127.0.0.1:{address[1]}", secrets, api)
    finally:
        stop_all([broker, api])
