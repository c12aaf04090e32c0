"""Well-formed reports and facts with senseless values: every command still answers."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli import farm
from orchestrator.planning.trials import Trial
from orchestrator.store import submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from tests.builders import a_phone, a_report, an_announcement, planned_runs
from tests.leasing import lease_next
from workloads.catalogue import bind
from workloads.protocol.base import digest_of
from workloads.protocol.condition import HEADLINES, Condition
from workloads.protocol.faults import FarmError
from workloads.protocol.messages import BadMessage, decode_parcel
from workloads.protocol.metrics import METRICS
from workloads.protocol.phone_facts import FuelGauge, Gpu, OpenCLFacts

Draw = random.Random
PHONES = [f"PH{number}" for number in range(4)]
SIMULATED = {"source": "simulated", "model": "extrapolated", "error_rel": None}
INTEGERS = [0, -1, 1, 2**31, 2**53, -(2**53)]
NUMBERS = [0.0, -1.0, 1e308, 5e-324, 1e15, -0.0]
TEXTS = ["", "x" * 5000, "\x1b[2J\x07", "a\nb", "=1+1", "<script>", "%s{}", "[red]", "\\", "-1"]
COMMANDS = (
    *(
        "sweep show test",
        "trial list test",
        "compare test --split-half",
        "report test -o page.html",
    ),
    *(
        "compare test:batch_size=4 batch_size=8 --metric {metric} --allow-mixed",
        "compare --over-time",
    ),
    *("export test --format {format} -o out", "export test --table ranking -o rank.csv"),
    *("select test --workload lenet --batch-size 4", "trial show {trial}", "sweep plan smoke.yaml"),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside a JSON-like value."""
    if path:
        yield path
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        yield from places(value[key], (*path, key))


def change(draw: Draw, message: dict[str, Any]) -> None:
    """Replace one value by a senseless one of the same kind."""
    *parents, last = draw.choice(list(places(message)))
    target: Any = message
    for key in parents:
        target = target[key]
    match target[last]:
        case bool(old):
            target[last] = not old
        case int():
            target[last] = draw.choice(INTEGERS)
        case float():
            target[last] = draw.choice(NUMBERS)
        case str():
            target[last] = draw.choice(TEXTS)
        case list(old):
            target[last] = draw.choice([[], old * 3, old[::-1]])


def send(draw: Draw, store: Database, valid: dict[str, Any], changes: int) -> None:
    """Store a message with some values changed; until one is well-formed."""
    for _ in range(20):
        message = copy.deepcopy(valid)
        for _ in range(changes):
            change(draw, message)
        try:
            parcel = decode_parcel(json.dumps(message))
        except BadMessage:
            continue
        store_parcels(store, "host-a", [parcel])
        return


def some_metrics(draw: Draw) -> list[dict[str, Any]]:
    """Return all metrics; a few of them have values that are just possible."""
    share = draw.choice([0.0, 0.1, 0.8])
    extremes = [0.0, 1e15, 1e-30, 1e-9]
    values = {
        name: draw.choice(extremes)
        if name not in HEADLINES.values() and draw.random() < share
        else 12.5 * draw.uniform(0.9, 1.1)
        for name in METRICS
    }
    return [
        {
            "name": f"{name}.1" if kind.per else name,
            "value": values[name],
            "unit": kind.unit,
            "provenance": SIMULATED,
        }
        for name, kind in METRICS.items()
    ]


def fill(draw: Draw, store: Database) -> list[Trial]:
    """Announce phones, report every run of a sweep, and announce the phones again."""
    facts = {
        "gpu": Gpu(name="g", folder="/f", ladder_khz=(1, 2)),
        "gauge": FuelGauge(discharge_sign=1, unit_a=1e-6, period_s=1.0),
        "opencl": OpenCLFacts(
            name="a", version="b", driver="c", units=3, memory_mb=100, max_alloc_mb=3
        ),
    }
    phones = [an_announcement(a_phone(serial, **facts)) for serial in PHONES]
    store_parcels(store, "host-a", phones)
    cells = [
        (bind("lenet", {"batch_size": size}), Condition(protocol=protocol))
        for size in (4, 8)
        for protocol in ("cold", "endurance")
    ]
    trials = [
        Trial(id=f"tr-{digest_of([number, serial])[:16]}", case=case, condition=at, phone=serial)
        for number, (case, at) in enumerate(cells)
        for serial in PHONES
    ]
    row = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}
    submission.submit(store, row, trials, planned_runs(trials, 3))
    while jobs := lease_next(store, dict.fromkeys(PHONES, "host-a"), lease_timeout_s=3600):
        for _, job in jobs:
            report = json.loads(a_report(job).model_dump_json())
            report |= {"metrics": some_metrics(draw), "step_time_curve": [[1.0, 12.5]] * 9}
            send(draw, store, report, draw.choice([0, 0, 1, 2]))
            store_parcels(store, "host-a", [a_report(job)])  # if none was well-formed
    for phone in phones:
        content = json.loads(phone.model_dump_json())
        serial = content["facts"].pop("serial")
        for _ in range(draw.choice([0, 2, 6])):
            change(draw, content["facts"])
        content["facts"]["serial"] = serial
        send(draw, store, content, 0)
    return trials


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_every_command_answers(
    store: Database, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    trials = fill(draw, store)
    example = Path("examples/smoke.yaml").read_text()
    monkeypatch.chdir(tmp_path)
    Path("smoke.yaml").write_text(example)
    for template in COMMANDS:
        command = template.format(
            metric=draw.choice([name for name, kind in METRICS.items() if not kind.per]),
            format=draw.choice(["csv", "jsonl", "parquet", "md", "latex"]),
            trial=draw.choice(trials).id,
        )
        words = [*command.split(), "--lab", str(tmp_path)]
        result = CliRunner().invoke(farm, words, standalone_mode=False)
        assert result.exception is None or isinstance(result.exception, FarmError), command
        assert "\x1b" not in result.output, command
