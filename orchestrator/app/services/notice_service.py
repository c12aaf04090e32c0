"""Finds what people should know, and delivers it: a thread of the scheduler's process.

Five events are reported: a sweep has ended; a sweep is stuck; a phone is quarantined; a host is in
trouble; store or broker are down.
"""

import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import LabPoller, LabView
from orchestrator.app.screen.waiting_sweep import absent_phones
from orchestrator.app.services.notice_delivery import deliver
from orchestrator.dispatch.host_notices import HostProblem
from orchestrator.planning.states import Health, PausedBy, RunState, SweepState
from orchestrator.store import notices
from orchestrator.store.live_views import phones_with_runs_left
from orchestrator.store.notices import NoticeKey, StoredNotice
from workloads.lab.service_metrics import ServiceMetrics
from workloads.lab.service_settings import NoticeKind
from workloads.protocol.faults import BrokerDown, FarmError, StoreDown
from workloads.units import count_text

log = logging.getLogger("farm.notices")

LOOK_INTERVAL_S = 5.0
DELIVER_INTERVAL_S = 1.0
HARMLESS = frozenset({HostProblem.OTHER_SOFTWARE, HostProblem.REFUSES})


def present_conditions(view: LabView) -> dict[NoticeKey, str]:
    """Return the conditions that are reported as soon as they hold, each with a sentence."""
    found: dict[NoticeKey, str] = {}
    for phone in view.phones:
        if phone.health is Health.QUARANTINED:
            text = f"phone {phone.serial} of {phone.host} is quarantined: {phone.health_reason}"
            found[NoticeKind.PHONE_QUARANTINED, phone.serial] = text
    for item in view.host_problems:
        if item.problem not in (*HARMLESS, HostProblem.CLAIMS):
            found.setdefault((NoticeKind.HOST_TROUBLE, item.host), f"host {item.host}: {item.text}")
    for sweep in (*view.sweeps, *view.others):
        title = f"sweep {sweep.name} ({sweep.id})"
        blocked = sweep.runs.get(RunState.BLOCKED, 0)
        if sweep.state is SweepState.PAUSED and sweep.paused_by is PausedBy.BUDGET:
            found[NoticeKind.SWEEP_STUCK, sweep.id] = f"{title} is paused: {sweep.state_reason}"
        elif sweep.state is SweepState.ACTIVE and blocked:
            text = f"{count_text(blocked, 'run')} blocked; see 'farm sweep show {sweep.id}'"
            found[NoticeKind.SWEEP_STUCK, sweep.id] = f"{title}: {text}"
    return found


def lasting_conditions(
    view: LabView, phones_of: Mapping[str, Collection[str]]
) -> dict[NoticeKey, str]:
    """Return the conditions that are reported if they last: what is away often comes back.

    `phones_of` names the phones with runs left of each active sweep.
    """
    found: dict[NoticeKey, str] = {}
    hosts = Counter(phone.host for phone in view.phones if phone.health is not Health.RETIRED)
    for host in hosts.keys() - view.hosts.keys():
        found[NoticeKind.HOST_TROUBLE, host] = (
            f"host {host} with {count_text(hosts[host], 'phone')} sends nothing; "
            "check its agent and its network"
        )
    for item in view.host_problems:
        if item.problem is HostProblem.CLAIMS:  # a cable that was just moved does not last
            found.setdefault((NoticeKind.HOST_TROUBLE, item.host), f"host {item.host}: {item.text}")
    absent = absent_phones(view.phones, view.at, view.drained)
    names = {sweep.id: sweep.name for sweep in (*view.sweeps, *view.others)}
    for sweep, phones in phones_of.items():
        if phones and absent.keys() >= set(phones):
            found[NoticeKind.SWEEP_STUCK, sweep] = (
                f"sweep {names[sweep]} ({sweep}): "
                f"none of its {count_text(len(phones), 'phone')} with runs left is available"
            )
    return found


class NoticeService:
    """Looks at the lab every few seconds, and tries to deliver what is due every second."""

    def __init__(self, lab: LabConnection, metrics: ServiceMetrics) -> None:
        self._lab = lab
        self._settings = lab.lab.settings.notices
        self._metrics = metrics
        self._poller: LabPoller | None = None
        self._since: dict[NoticeKey, float] = {}  # since when a condition lasts
        self._looked_at = float("-inf")
        self._down_since: float | None = None
        self._is_outage_reported = False

    def serve(self, stop: threading.Event) -> None:
        """Look and deliver until stopped; while store or broker is down, report that."""
        while not stop.wait(DELIVER_INTERVAL_S):
            moment = time.monotonic()
            try:
                if moment - self._looked_at >= LOOK_INTERVAL_S:
                    self._looked_at = moment
                    self.look(moment)
                self.deliver_due()
            except (BrokerDown, StoreDown) as error:
                self.report_outage(error, moment)
            except Exception:  # a broken notice must not stop the others
                log.exception("notices failed")

    def look(self, moment: float) -> None:
        """Compare the lab with the notices that are open."""
        db = self._lab.store
        self._poller = self._poller or LabPoller(self._lab)
        view = self._poller.read()
        self._down_since, self._is_outage_reported = None, False
        sweeps = (*view.sweeps, *view.others)
        active = [item.id for item in sweeps if item.state is SweepState.ACTIVE and item.left]
        lasting = lasting_conditions(view, phones_with_runs_left(db, active))
        self._since = {key: self._since.get(key, moment) for key in lasting}
        away_after_s = self._settings.away_after_s
        held = {
            key: text for key, text in lasting.items() if moment - self._since[key] >= away_after_s
        }
        found = held | present_conditions(view)
        for kind, subject in notices.update_conditions(db, found, time.time()):
            log.warning("%s kind=%s subject=%s", found[kind, subject], kind, subject)
        self._metrics.set_by_label("farm_notices_open", Counter(str(kind) for kind, _ in found))
        free_bytes = float(shutil.disk_usage(self._lab.lab.root).free)
        self._metrics.set("farm_disk_free_bytes", free_bytes)

    def deliver_due(self) -> None:
        """Try the deliveries that are due, until one fails: the others would fail too."""
        db, settings = self._lab.store, self._settings
        if not settings.has_target:
            return
        for due in notices.due_notices(db, time.time()):
            error = deliver(due, settings, self._lab.lab.root)
            state = notices.note_delivery(db, due, error, time.time())
            self._metrics.add("farm_notice_deliveries_total", label="failed" if error else "sent")
            if error:
                text = "a notice was not delivered: %s notice=%d state=%s tries=%d"
                log.warning(text, error, due.id, state, due.tries + 1)
                break
        self._metrics.set("farm_notices_waiting", notices.count_waiting(db))

    def report_outage(self, error: FarmError, moment: float) -> None:
        """Report that store or broker are down, once it lasts; the store cannot keep this."""
        if self._down_since is None:
            self._down_since = moment
        lasts = moment - self._down_since >= self._settings.away_after_s
        if self._is_outage_reported or not lasts or not self._settings.has_target:
            return
        service = "broker" if isinstance(error, BrokerDown) else "store"
        report = StoredNotice(0, NoticeKind.SERVICE_DOWN, service, str(error), time.time())
        failure = deliver(report, self._settings, Path(self._lab.lab.root))
        self._is_outage_reported = not failure
