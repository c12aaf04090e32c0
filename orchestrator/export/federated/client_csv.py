"""The one table that all exports are made from, as CSV for everybody else."""

import csv
import io
from collections.abc import Mapping, Sequence

from orchestrator.export.escape import text_cell
from orchestrator.export.federated.consumer_files import Consumer, NetworkLink, batch_ms
from orchestrator.selection.client_estimate import Estimate
from orchestrator.selection.client_types import Client, ClientTable
from orchestrator.selection.round_fleet import fits_in_memory

CLIENTS = "clients.csv"
_FIGURES = ("cold_ms_per_sample", "sustained_ms_per_sample", "energy_mj_per_sample")


def render(census: ClientTable, _: NetworkLink | None) -> Mapping[str, bytes]:
    """One row a phone, units in the names, an empty cell where nothing is known."""
    text = io.StringIO(newline="")
    rows = [_row(index, client, census) for index, client in enumerate(census.clients)]
    writer = csv.DictWriter(text, rows[0].keys())
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return {CLIENTS: text.getvalue().encode()}


def _cell(value: object) -> object:
    return text_cell(value) if isinstance(value, str) else value


def _row(index: int, client: Client, census: ClientTable) -> dict[str, object]:
    figures = (client.cold_ms, client.sustained_ms, client.energy_mj)
    row: dict[str, object] = {
        "client": index,
        "phone": client.phone,
        "model": client.model,
        "soc": client.soc,
        "workload": census.workload,
        "batch": census.batch,
        "setting": client.setting,
    }
    for name, figure in zip(_FIGURES, figures, strict=True):
        row |= _columns(name, figure)
    return row | {
        "batch_ms": batch_ms(client, census.batch),
        "heating_s": client.heating_s,
        "battery_j": client.battery_j,
        "peak_rss_mb": client.peak_mb,
        "ram_mb": client.ram_mb,
        "fits": fits_in_memory(client),
        "provenance": str(client.cold_ms.provenance),
        "runs": len(client.runs),
    }


def _columns(name: str, figure: Estimate | None) -> dict[str, object]:
    return {
        name: figure.value if figure else None,
        f"{name}_low": figure.low if figure else None,
        f"{name}_high": figure.high if figure else None,
    }


def believed_ms(contents: Mapping[str, bytes], _: int) -> Sequence[float]:
    """Whoever reads the table takes the column."""
    rows = csv.DictReader(io.StringIO(contents[CLIENTS].decode(), newline=""))
    return [float(row["batch_ms"]) for row in rows]


TABLE = Consumer(
    name="table",
    title="a table",
    conventions=("units stand in the column names; low and high are the ends of 95 % intervals",),
    needs_link=False,
    render_files=render,
    read_batch_ms=believed_ms,
    includes_all_phones=True,
)
