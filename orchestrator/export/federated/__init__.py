"""Files that federated-learning simulators load, all from one table of measured phones.

Each writer knows its consumer's units and pitfalls, and reads its own files back as the consumer
does: the step times that the consumer derives are compared with the measured ones.
"""

from orchestrator.export.federated.client_csv import TABLE
from orchestrator.export.federated.consumer_files import (
    Consumer,
    WrittenExport,
    write_consumer_files,
)
from orchestrator.export.federated.fedscale import FEDSCALE
from orchestrator.export.federated.flash import FLASH
from orchestrator.export.federated.flower import FLOWER
from orchestrator.export.federated.oort_file import OORT

CONSUMERS: dict[str, Consumer] = {
    consumer.name: consumer for consumer in (FEDSCALE, OORT, FLASH, FLOWER, TABLE)
}

__all__ = ["CONSUMERS", "Consumer", "WrittenExport", "write_consumer_files"]
