"""Latency of the API while many streams are open and many clients poll.

    python -m benchmarks.api_load [--phones 300] [--streams 136] [--pollers 20] [--seconds 15]

Real processes: a broker, and the API of a lab with one sweep and heartbeats of all phones every
second. Half of the streams are those of the page. Each poller asks for the changes of the lab, as
`farm watch` does, a second after its last answer.
"""

import argparse
import http.client
import json
import statistics
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from benchmarks.scheduler import SimulatedLab, build_lab, submit
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.manage_tokens import add_login_link, add_token
from orchestrator.app.operation import Role
from orchestrator.supervisor.embedded_broker import embedded_broker, wait_for_broker
from orchestrator.supervisor.process import stop_all
from orchestrator.supervisor.services import api_service
from tests.api.conftest import free_port, is_open
from tests.farm.conftest import wait_for
from workloads.lab.settings import Lab

PER_PERSON = 25
PAUSE_S = 1.0


def open_stream(address: str, path: str, headers: dict[str, str], ended: threading.Event) -> int:
    """Read a stream until the measurement ends; return its status, or 0 if it broke."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        while response.status == 200 and not ended.is_set():
            if not response.readline():
                return 0
        return response.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def poll(address: str, secret: str, until: float) -> list[tuple[int, float]]:
    """Ask again and again; return the status and the duration of each answer."""
    answers, version = [], ""
    headers = {"Authorization": f"Bearer {secret}"}
    while time.monotonic() < until:
        started = time.monotonic()
        connection, status = http.client.HTTPConnection(address, timeout=60), 0
        with suppress(OSError, http.client.HTTPException):
            body = json.dumps({"version": version})
            connection.request("POST", "/v1/operations/read_lab_changes", body, headers)
            response = connection.getresponse()
            content, status = response.read(), response.status
            version = json.loads(content)[0] if status == 200 else version
        connection.close()
        answers.append((status, time.monotonic() - started))
        time.sleep(PAUSE_S)
    return answers


def session_of(address: str, url: str) -> str:
    """Open a login link; return the cookie."""
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/" + url.partition("://")[2].partition("/")[2])
    cookie = str(connection.getresponse().headers["Set-Cookie"])
    connection.close()
    return cookie.partition(";")[0]


def visitors(lab: Lab, count: int) -> list[tuple[str, dict[str, str]]]:
    """Return the paths and headers of streams of several people."""
    found = []
    with LabConnection(lab, "root") as connection:
        for first in range(0, count, PER_PERSON):
            person = f"person {first}"
            secret = add_token(connection, person, Role.VIEWER, 1).secret
            cookie = session_of(lab.settings.api.listen, add_login_link(connection, person).url)
            both = [
                ("/v1/events", {"Authorization": f"Bearer {secret}"}),
                ("/page/events", {"Cookie": cookie}),
            ]
            found += (both * PER_PERSON)[: min(PER_PERSON, count - first)]
    return found


def beat(simulated: SimulatedLab, ended: threading.Event) -> None:
    """Publish heartbeats every second."""
    while not ended.wait(1.0):
        simulated.publish_heartbeats()


def measure(lab: Lab, simulated: SimulatedLab, options: argparse.Namespace) -> None:
    """Open the streams, let the pollers ask, and print what they saw."""
    address, ended = lab.settings.api.listen, threading.Event()
    with LabConnection(lab, "root") as connection:
        secrets = [
            add_token(connection, f"poller {number}", Role.VIEWER, 1).secret
            for number in range(options.pollers)
        ]
    streams = visitors(lab, options.streams)
    with ThreadPoolExecutor(options.streams + options.pollers + 1) as threads:
        threads.submit(beat, simulated, ended)
        opened = [threads.submit(open_stream, address, *each, ended) for each in streams]
        time.sleep(3.0)  # all streams have begun
        until = time.monotonic() + options.seconds
        polled = [threads.submit(poll, address, secret, until) for secret in secrets]
        answers = [answer for each in polled for answer in each.result()]
        ended.set()
        kept = Counter(each.result() for each in opened)
    took = sorted(seconds for status, seconds in answers if status == 200)
    statuses = dict(Counter(status for status, _ in answers))
    print(f"streams by status: {dict(kept)}; requests by status: {statuses}")
    if len(took) > 1:
        cuts = statistics.quantiles(took, n=20)
        print(
            f"p50 {cuts[9] * 1e3:.0f} ms, p95 {cuts[18] * 1e3:.0f} ms, max {took[-1] * 1e3:.0f} ms"
        )


def main() -> None:
    """Prepare the lab, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phones", type=int, default=300)
    parser.add_argument("--streams", type=int, default=136)
    parser.add_argument("--pollers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="farm-") as name:
        root = Path(name) / "lab"
        root.mkdir()
        (root / "lab.toml").write_text(f'[api]\nlisten = "127.0.0.1:{free_port()}"\n')
        lab = Lab.read(root, {})
        broker, services = embedded_broker(lab), list(api_service(lab))
        broker.start()
        try:
            wait_for_broker(lab, broker)
            simulated = build_lab(lab.store_url, lab.broker_url, options.phones)
            submit(simulated, 100)
            simulated.publish_heartbeats()
            for service in services:
                service.start()
            host, _, port = lab.settings.api.listen.rpartition(":")
            wait_for(lambda: is_open((host, int(port))), "the API listens")
            measure(lab, simulated, options)
        finally:
            stop_all([*services, broker])


if __name__ == "__main__":
    main()
