"""Whether the services of a lab that was just started answer, and which phones can be used."""

from datetime import datetime
from typing import NamedTuple

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.remote.api_port import is_listening
from orchestrator.store.phone_queries import known_phones
from workloads.protocol.faults import BrokerDown, StoreDown
from workloads.protocol.messages import PhoneState


class LabReadiness(NamedTuple):
    """The services that do not answer, and the number of phones that can be used."""

    missing: tuple[str, ...]
    phones: int = 0


def read_readiness(lab: LabConnection, since: datetime, host: str, with_api: bool) -> LabReadiness:
    """Return what has answered since a moment; without a `host`, no agent is expected.

    A phone can be used when its host reports it and the store knows it.
    """
    try:
        scheduler, ingests = lab.broker.scheduler(), lab.broker.ingest_services()
        beats = [beat for beat in lab.broker.heartbeats() if beat.sent_at >= since]
        answers = {
            "scheduler": scheduler is not None and scheduler.sent_at >= since,
            "ingest": any(beat.sent_at >= since for beat in ingests),
            f"agent of {host}": not host or any(beat.host == host for beat in beats),
            "API": not with_api or is_listening(lab.lab.settings.api),
        }
        if missing := tuple(name for name, is_up in answers.items() if not is_up):
            return LabReadiness(missing)
        known = {phone.serial for phone in known_phones(lab.store)}
    except (BrokerDown, StoreDown) as error:
        return LabReadiness(("broker" if isinstance(error, BrokerDown) else "store",))
    here = (status for beat in beats if beat.host == host for status in beat.phones)
    present = {status.serial for status in here if status.state is not PhoneState.AWAY}
    return LabReadiness((), len(present & known))
