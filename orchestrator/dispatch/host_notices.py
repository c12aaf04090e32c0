"""What an operator should know about hosts: other versions, names used twice, bad messages.

Everything is derived from heartbeats, so that every reader sees the same within seconds.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.dispatch.central_broker import HostReading
from workloads.lab.process_identity import software_version
from workloads.protocol.messages import PROTOCOL, IngestHeartbeat


class HostProblem(StrEnum):
    """What is wrong with a host; runs are sent only with the last four."""

    UNREADABLE = "unreadable"
    OTHER_PROTOCOL = "other_protocol"
    UNKNOWN_HOST = "unknown_host"
    SAME_NAME = "same_name"
    CLAIMS = "claims"
    OTHER_SOFTWARE = "other_software"
    REFUSES = "refuses"
    DROPPED = "dropped"


@dataclass(frozen=True)
class HostNotice:
    """Something about a host that an operator should know: a code, and the text for people."""

    host: str
    problem: HostProblem
    text: str


NO_RUNS = frozenset(
    {
        *(HostProblem.UNREADABLE, HostProblem.OTHER_PROTOCOL),
        *(HostProblem.UNKNOWN_HOST, HostProblem.SAME_NAME),
    }
)


def host_notices(
    readings: Sequence[HostReading],
    ingests: Sequence[IngestHeartbeat] = (),
    hosts: Collection[str] | None = None,
) -> list[HostNotice]:
    """Return the problems of all hosts; `hosts` names those of the lab; None: every host."""
    notices = []
    for reading in readings:
        for problem, text in _problems(reading, hosts):
            notices.append(HostNotice(reading.host, problem, text))
    for ingest in ingests:
        for host, count in sorted(ingest.dropped.items()):
            reason = ingest.reasons.get(host, "")
            text = f"ingest dropped {count} of its messages, the last one because {reason}"
            notices.append(HostNotice(host, HostProblem.DROPPED, text))
    return notices


def _problems(
    reading: HostReading, hosts: Collection[str] | None
) -> Iterator[tuple[HostProblem, str]]:
    own, beat = software_version(), reading.heartbeat
    if hosts is not None and reading.host not in hosts:
        text = "it was not added to the lab, so it gets no runs; use 'farm host add'"
        yield HostProblem.UNKNOWN_HOST, text
    if beat is None and (reading.identity is None or reading.identity.version == PROTOCOL):
        yield HostProblem.UNREADABLE, "its heartbeat cannot be read, so it gets no runs"
    elif beat is None and reading.identity is not None:
        text = (
            f"it uses protocol {reading.identity.version} (version {reading.identity.software}), "
            f"the lab uses {PROTOCOL} (version {own}); install the same version"
        )
        yield HostProblem.OTHER_PROTOCOL, text
    if beat is None:
        return
    if beat.rival is not None:
        text = (
            "two agents use this name, so it gets no runs; stop one, or start it with another "
            f"--host (instances {beat.instance} and {beat.rival})"
        )
        yield HostProblem.SAME_NAME, text
    if reading.claims:
        yield HostProblem.CLAIMS, claims_text(reading)
    if beat.software != own:
        text = f"it runs version {beat.software or 'unknown'}, the lab runs {own}"
        yield HostProblem.OTHER_SOFTWARE, text
    if beat.refused:
        text = f"it refused {beat.refused} messages, the last one because {beat.refusal}"
        yield HostProblem.REFUSES, text


def claims_text(reading: HostReading) -> str:
    """Return what a host says about phones and runs of others, and what to do."""
    claim = max(reading.claims, key=lambda item: item.is_contested)
    text = f"it names {claim.name} of {claim.owner}"
    if len(reading.claims) > 1:
        text += f", and {len(reading.claims) - 1} more that belong to other hosts"
    if claim.is_contested:
        text += f"; {claim.name} was here before, so it gets no runs until you say where it is"
    else:
        text += "; that is ignored. If you have moved the phone, say so"
    return f"{text}: farm phone move {claim.name} HOST"
