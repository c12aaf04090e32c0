"""Finds what people should know, and delivers it; a thread of the scheduler's process."""

import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.decisions.health import Health
from orchestrator.decisions.notice_rules import NoticeInputs, conditions, new_conditions
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.notice_delivery import deliver
from orchestrator.store import notices
from orchestrator.store.database import Database
from workloads.protocol.faults import BrokerDown, StoreDown
from workloads.protocol.messages import PhoneState
from workloads.service_metrics import ServiceMetrics
from workloads.service_settings import NoticeSettings

log = logging.getLogger("farm.notices")

LOOK_INTERVAL_S = 5.0
DELIVER_INTERVAL_S = 1.0


class NoticeService:
    """Looks at the lab every few seconds, and tries to deliver what is due every second."""

    def __init__(
        self,
        db: Database,
        broker: CentralBroker,
        settings: NoticeSettings,
        folder: Path,
        metrics: ServiceMetrics,
    ) -> None:
        self._db = db
        self._broker = broker
        self._settings = settings
        self._folder = folder
        self._metrics = metrics
        self._missing_since: dict[tuple[str, str], float] = {}
        self._looked_at = float("-inf")

    def serve(self, stop: threading.Event) -> None:
        """Look and deliver until stopped; while store or broker is down, wait."""
        while not stop.wait(DELIVER_INTERVAL_S):
            try:
                moment = time.monotonic()
                if moment - self._looked_at >= LOOK_INTERVAL_S:
                    self._looked_at = moment
                    self.look(moment)
                self.deliver_due()
            except (BrokerDown, StoreDown):
                continue  # the scheduler logs it
            except Exception:  # a broken notice must not stop the others
                log.exception("notices failed")

    def look(self, moment: float) -> None:
        """Compare the lab with the notices that are open."""
        view = self._view(moment)
        settings, now = self._settings, time.time()
        found = conditions(view, settings.away_after_s, settings.disk_free_gb_min * 1e9)
        held, raised_at_s = notices.open_notices(self._db, now)
        new, ended = new_conditions(found, held, raised_at_s, now), held - found.keys()
        if new or ended:
            notices.update_notices(self._db, new, ended, now)
        for (kind, subject), text in new.items():
            log.warning("%s kind=%s subject=%s", text, kind, subject)
        kinds = Counter(str(kind) for kind, _ in (held - ended) | new.keys())
        self._metrics.set_by_label("farm_notices_open", kinds)
        self._metrics.set("farm_notices_waiting", notices.count_waiting(self._db))
        self._metrics.set("farm_disk_free_bytes", min(view.disk_free_bytes.values(), default=0))

    def _view(self, moment: float) -> NoticeInputs:
        beats = self._broker.heartbeats()
        phones = notices.phones_of_lab(self._db)
        here = {
            phone.serial
            for beat in beats
            for phone in beat.phones
            if phone.state is not PhoneState.AWAY
        }
        missing_phones = phones.keys() - here
        missing_hosts = {phone.host for phone in phones.values()} - {beat.host for beat in beats}
        some_cannot_work = any(phone.health != Health.GOOD for phone in phones.values())
        keys = [("phone", name) for name in missing_phones]
        keys += [("host", name) for name in missing_hosts]
        self._missing_since = {key: self._missing_since.get(key, moment) for key in keys}
        return NoticeInputs(
            phones,
            self._missing_s("phone", missing_phones, moment),
            self._missing_s("host", missing_hosts, moment),
            notices.open_sweeps(self._db, bool(missing_phones) or some_cannot_work),
            {str(self._folder): float(shutil.disk_usage(self._folder).free)},
        )

    def _missing_s(self, kind: str, names: Iterable[str], moment: float) -> Mapping[str, float]:
        return {name: moment - self._missing_since[kind, name] for name in names}

    def deliver_due(self) -> None:
        """Try every delivery that is due; a target that fails waits for the next round."""
        targets = self._settings.targets
        notices.spread_notices(self._db, targets)
        failed: set[str] = set()
        for due in notices.due_deliveries(self._db, time.time()):
            if due.target in failed:
                continue
            target = targets.get(due.target)
            error = "lab.toml no longer has this target"
            if target is not None:
                error = deliver(due.notice, target, self._folder.name, self._folder)
            state = notices.note_delivery(self._db, due, error, time.time())
            self._metrics.add("farm_notice_deliveries_total", label="failed" if error else "sent")
            if error:
                failed.add(due.target)
                text = "a notice was not delivered: %s notice=%d target=%s state=%s tries=%d"
                log.warning(text, error, due.notice.id, due.target, state, due.tries + 1)
