"""Changes of a lab since the last request: a remote screen, or the page, receives each once.

The API keeps the last states of a lab as JSON, each with a version. A client names the version that
it has and is sent the difference to the newest one, or all of it if its version is not kept.
"""

import secrets
import threading
import time
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from orchestrator.app.app_errors import ApiDown
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import LabPoller, LabView
from orchestrator.app.operation import Role, operation
from workloads.protocol.phone_facts import PhoneFacts

POLL_DISTANCE_S, POLL_SHARE = 0.25, 0.25  # of a large lab, polls take at most this share of time
STATES_KEPT, LOGS_KEPT = 32, 8
_VIEW = TypeAdapter(LabView)
_WITHOUT_FACTS = {"phones": {"__all__": {"facts"}}}


class LabChange(NamedTuple):
    """The way from the state that a client has to the newest one, and its version."""

    version: str
    change: Any


def difference(old: Any, new: Any) -> Any:
    """Return how JSON changed: [the new value], or by key what changed, where null is removed.

    Lists of the same length change by index. Nothing changed: {}.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        changes: dict[str, Any] = {key: None for key in old if key not in new}
        for key, value in new.items():
            change = difference(old[key], value) if key in old else [value]
            if change:
                changes[key] = change
        return changes
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(map(difference, old, new))
        return {str(index): change for index, change in pairs if change}
    return {} if old == new and type(old) is type(new) else [new]


def apply_change(old: Any, change: Any) -> Any:
    """Return JSON after a change; what did not change is the same object."""
    if isinstance(change, list):
        return change[0]
    if not change:
        return old
    if isinstance(old, list):
        values = list(old)
        for index, each in change.items():
            values[int(index)] = apply_change(values[int(index)], each)
        return values
    removed = {key for key, each in change.items() if each is None}
    members = {key: value for key, value in old.items() if key not in removed}
    for key in change.keys() - removed:
        members[key] = apply_change(old.get(key), change[key])
    return members


class LabChangeLog:
    """The last states of a lab while one sweep is followed; any number of clients share them."""

    def __init__(self, lab: LabConnection, sweep: str | None) -> None:
        self._poller = LabPoller(lab, sweep, with_values=True)
        self._lock = threading.Lock()
        self._series, self._count = secrets.token_hex(4), 0
        self._states: dict[str, Any] = {}
        self._poll_at = 0.0  # not before
        self._facts: dict[str, tuple[PhoneFacts, Any]] = {}

    def since(self, version: str) -> LabChange:
        """Return the newest version, and what changed since another one."""
        with self._lock:
            if time.monotonic() >= self._poll_at:
                self._poll()
            newest = next(reversed(self._states))
            return LabChange(newest, difference(self._states.get(version), self._states[newest]))

    def _poll(self) -> None:
        started = time.monotonic()
        view = self._poller.poll()
        state = _VIEW.dump_python(view, mode="json", exclude=_WITHOUT_FACTS)
        state["phones"] = {each["serial"]: each for each in state["phones"]}
        for each in state["phones"].values():  # most phones were seen when their host was
            if each["last_seen_at"] == state["hosts"].get(each["host"]):
                del each["last_seen_at"]
        self._facts = {each.serial: self._dumped(each.serial, each.facts) for each in view.phones}
        state["facts"] = {serial: dumped for serial, (_, dumped) in self._facts.items()}
        last = self._states[next(reversed(self._states))] if self._states else None
        self._count += 1
        self._states[f"{self._series}-{self._count}"] = apply_change(last, difference(last, state))
        if len(self._states) > STATES_KEPT:
            del self._states[next(iter(self._states))]
        took_s = time.monotonic() - started
        self._poll_at = started + max(POLL_DISTANCE_S, took_s / POLL_SHARE)

    def _dumped(self, serial: str, facts: PhoneFacts) -> tuple[PhoneFacts, Any]:
        known = self._facts.get(serial)
        return known if known and known[0] is facts else (facts, facts.model_dump(mode="json"))


@operation(Role.VIEWER)
def read_lab_changes(lab: LabConnection, sweep: str | None = None, version: str = "") -> LabChange:
    """Read what changed in the lab since a version; without one, all of it."""
    logs = lab.change_logs
    log = logs.pop(sweep, None) or LabChangeLog(lab, sweep)
    logs[sweep] = log  # the newest at the end
    if len(logs) > LOGS_KEPT:
        logs.pop(next(iter(logs)), None)
    return log.since(version)


class RemotePoller:
    """Reads the state of a lab repeatedly through its API."""

    def __init__(self, lab: LabConnection, sweep: str | None) -> None:
        self._lab = lab
        self._sweep = sweep
        self._version = ""
        self._state: Any = None
        self._facts: dict[str, tuple[Any, PhoneFacts]] = {}

    def follow(self, sweep: str) -> None:
        """Follow another sweep from the next poll on."""
        self._sweep = sweep

    def poll(self) -> LabView:
        """Return the current state."""
        version, change = read_lab_changes(self._lab, self._sweep, self._version)
        self._version = ""  # all is sent again after an answer that cannot be read
        try:
            self._state = apply_change(self._state, change)
            view = self._view()
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ApiDown(
                f"the response of {self._lab.place} cannot be read; use the same version as the lab"
            ) from error
        self._version = version
        return view

    def _view(self) -> LabView:
        facts: dict[str, tuple[Any, PhoneFacts]] = {}
        for serial, content in self._state["facts"].items():
            known = self._facts.get(serial)
            is_same = known is not None and known[0] is content
            facts[serial] = (
                known if known and is_same else (content, PhoneFacts.model_validate(content))
            )
        self._facts = facts
        hosts = self._state["hosts"]
        phones = [
            {"last_seen_at": hosts.get(each["host"]), **each, "facts": facts[serial][1]}
            for serial, each in self._state["phones"].items()
        ]
        others = {key: value for key, value in self._state.items() if key != "facts"}
        return _VIEW.validate_python({**others, "phones": phones})


def open_poller(lab: LabConnection, sweep: str | None) -> LabPoller | RemotePoller:
    """Return what reads the state of a lab, here or through its API."""
    return RemotePoller(lab, sweep) if lab.remote else LabPoller(lab, sweep, with_values=True)
