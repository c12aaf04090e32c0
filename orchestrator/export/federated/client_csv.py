"""The table of clients as CSV: the data behind all other exports, for any other program."""

import csv
import io
from collections.abc import Mapping, Sequence

from orchestrator.export.escape import text_cell
from orchestrator.export.federated.consumer_files import Consumer, NetworkLink, batch_ms
from orchestrator.selection.client_estimate import Estimate
from orchestrator.selection.client_types import Client, ClientTable
from orchestrator.selection.round_fleet import fits_in_memory

CLIENTS = "clients.csv"
_ESTIMATES = ("cold_ms_per_sample", "sustained_ms_per_sample", "energy_mj_per_sample")


def render_files(table: ClientTable, _: NetworkLink | None) -> Mapping[str, bytes]:
    """Return one row per phone, with units in the names; unknown values are empty."""
    text = io.StringIO(newline="")
    rows = [_row(index, client, table) for index, client in enumerate(table.clients)]
    writer = csv.DictWriter(text, rows[0].keys())
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return {CLIENTS: text.getvalue().encode()}


def _cell(value: object) -> object:
    return text_cell(value) if isinstance(value, str) else value


def _row(index: int, client: Client, table: ClientTable) -> dict[str, object]:
    estimates = (client.cold_ms, client.sustained_ms, client.energy_mj)
    row: dict[str, object] = {
        "client": index,
        "phone": client.phone,
        "model": client.model,
        "soc": client.soc,
        "workload": table.workload,
        "batch": table.batch,
        "setting": client.setting,
    }
    for name, estimate in zip(_ESTIMATES, estimates, strict=True):
        row |= _columns(name, estimate)
    return row | {
        "batch_ms": batch_ms(client, table.batch),
        "heating_s": client.heating_s,
        "battery_j": client.battery_j,
        "peak_rss_mb": client.peak_mb,
        "ram_mb": client.ram_mb,
        "fits": fits_in_memory(client),
        "provenance": str(client.cold_ms.provenance),
        "runs": len(client.runs),
    }


def _columns(name: str, estimate: Estimate | None) -> dict[str, object]:
    return {
        name: estimate.value if estimate else None,
        f"{name}_low": estimate.low if estimate else None,
        f"{name}_high": estimate.high if estimate else None,
    }


def read_batch_ms(contents: Mapping[str, bytes], _: int) -> Sequence[float]:
    """Return the column batch_ms."""
    rows = csv.DictReader(io.StringIO(contents[CLIENTS].decode(), newline=""))
    return [float(row["batch_ms"]) for row in rows]


TABLE = Consumer(
    name="table",
    title="a table",
    conventions=("column names contain the unit; low and high are the ends of 95 % intervals",),
    needs_link=False,
    render_files=render_files,
    read_batch_ms=read_batch_ms,
    includes_all_phones=True,
)
