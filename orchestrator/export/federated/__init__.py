"""Files that federated-learning simulators load, all from one table of measured phones.

Each writer knows its consumer's units and pitfalls, and reads its own files back as the consumer
does: the times that the consumer derives are compared with those of `farm select`.
"""

from orchestrator.export.federated.appfl import APPFL
from orchestrator.export.federated.client_csv import CSV
from orchestrator.export.federated.consumer_files import (
    Consumer,
    WrittenExport,
    write_consumer_files,
)
from orchestrator.export.federated.fedscale import FEDSCALE
from orchestrator.export.federated.flower import FLOWER

CONSUMERS: dict[str, Consumer] = {
    consumer.name: consumer for consumer in (FEDSCALE, FLOWER, APPFL, CSV)
}

__all__ = ["CONSUMERS", "Consumer", "WrittenExport", "write_consumer_files"]
