"""The clients as CSV: the data behind all other exports, for any other program."""

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np

from orchestrator.export.escape import text_cell
from orchestrator.export.federated.consumer_files import (
    MODEL_KBIT,
    Consumer,
    ConsumerRounds,
    FleetExport,
    or_null,
)
from orchestrator.selection.client_estimate import Estimate
from orchestrator.selection.client_types import Client
from orchestrator.selection.round_clock import link_cost
from orchestrator.selection.round_fleet import fits_in_memory

CLIENTS, WINDOWS = "clients.csv", "availability.csv"
_ESTIMATES = ("cold_ms_per_sample", "sustained_ms_per_sample", "energy_mj_per_sample")


def render_files(export: FleetExport) -> Mapping[str, bytes]:
    """Return one row per client, with units in the names, and one row per window."""
    population = export.population
    rows = [_phone_columns(client, export) for client in population.phones]
    down, up = population.link_kbps or (np.full(len(population), np.nan),) * 2
    columns = zip(
        population.phone_of.tolist(),
        population.speed_factor.tolist(),
        export.round_s.tolist(),
        or_null(down),
        or_null(up),
        strict=True,
    )
    header = (*("client", "speed_factor", "round_s", "link_down_kbps", "link_up_kbps"), *rows[0])
    values = [
        [text_cell(value) if isinstance(value, str) else value for value in row.values()]
        for row in rows
    ]
    return {
        CLIENTS: _render(
            header, [[client, *own, *values[phone]] for client, (phone, *own) in enumerate(columns)]
        ),
        WINDOWS: _render(
            ("client", "start_s", "end_s", "charging"),
            [
                [client, start, end, int(charging)]
                for client, (windows, flags) in enumerate(
                    zip(export.windows, _charging(export), strict=True)
                )
                for (start, end), charging in zip(windows, flags, strict=True)
            ],
        ),
    }


def _render(header: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def _charging(export: FleetExport) -> list[list[bool]]:
    available = export.population.availability
    known = ~np.isnan(available.start_s)
    flags = zip(available.charging.tolist(), known.tolist(), strict=True)
    return [[flag for flag, is_known in zip(*pair, strict=True) if is_known] for pair in flags]


def _phone_columns(client: Client, export: FleetExport) -> dict[str, object]:
    estimates = (client.cold_ms, client.sustained_ms, client.energy_mj)
    row: dict[str, object] = {
        "phone": client.phone,
        "model": client.model,
        "soc": client.soc,
        "workload": export.workload,
        "batch": export.batch,
        "samples_per_round": export.samples,
        "rest_s": export.rest_s,
        "setting": client.setting,
    }
    for name, estimate in zip(_ESTIMATES, estimates, strict=True):
        row |= _columns(name, estimate)
    return row | {
        "heating_s": client.heating_s,
        "battery_j": client.battery_j,
        "peak_rss_mb": client.peak_mb,
        "ram_mb": client.ram_mb,
        "fits": fits_in_memory(client),
        "provenance": str(client.cold_ms.provenance),
        "runs": len(client.runs),
    }


def _columns(name: str, estimate: Estimate | None) -> dict[str, object]:
    is_known = estimate is not None and not estimate.provenance.error_unknown
    return {
        name: estimate.value if estimate else None,
        f"{name}_low": estimate.low if estimate and is_known else None,
        f"{name}_high": estimate.high if estimate and is_known else None,
        f"{name}_source": str(estimate.provenance) if estimate else None,
    }


def read_rounds(contents: Mapping[str, bytes], _: float, __: int) -> ConsumerRounds:
    """Return the column round_s, and the time of the links."""
    rows = csv.reader(io.StringIO(contents[CLIENTS].decode(), newline=""))
    header = next(rows)
    wanted = [header.index(name) for name in ("round_s", "link_down_kbps", "link_up_kbps")]
    values = np.array([[float(row[i] or "nan") for i in wanted] for row in rows])
    if np.isnan(values[:, 1]).any():
        return ConsumerRounds(values[:, 0])
    return ConsumerRounds(values[:, 0], link_cost(MODEL_KBIT, values[:, 1], values[:, 2])[0])


CSV = Consumer(
    name="csv",
    title="The CSV table",
    conventions=(
        "column names contain the unit; low and high are the ends of 95 % intervals, empty where "
        "the source says that the error is unknown",
        "round_s: work of a round of samples_per_round, in the duty cycle of the export",
        "speed_factor: time of this unit over that of its measured phone",
        "availability.csv: windows in seconds, repeated after full days",
    ),
    needs_link=False,
    render_files=render_files,
    read_rounds=read_rounds,
    includes_all_phones=True,
)
