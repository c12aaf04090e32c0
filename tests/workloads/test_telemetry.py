"""Telemetry: traced operations joined with sampled series, on traces written by hand."""

import pytest

from workloads.protocol.faults import InvalidRequest
from workloads.protocol.telemetry import (
    BUSY,
    CLOCK,
    ENERGY,
    CumulativeSeries,
    Telemetry,
    copy_share,
    integrate,
    op_rows,
    op_spans,
    pack_telemetry,
    read_telemetry,
    step_similarity,
)

MS = 10**6
OPS = (("conv.forward", "conv"), ("pool.forward", "copy"), ("conv.update", "update"))


def a_trace(
    step: int, t_ms: int, *ends_ms: float, first: int = 0
) -> tuple[int, int, int, list[int]]:
    return step, t_ms * MS, first, [round(end * MS) if end >= 0 else -1 for end in ends_ms]


def test_an_operation_starts_where_the_previous_one_ended() -> None:
    spans = op_spans([a_trace(3, 100, 2, -1, 5), a_trace(3, 105, 1, first=3)])
    found = [(span.op, span.start_ns // MS, span.end_ns // MS) for span in spans]
    assert found == [(0, 100, 102), (2, 102, 105), (3, 105, 106)]


def test_a_series_is_interpolated() -> None:
    series = integrate([(0, 2.0), (10**9, 4.0), (2 * 10**9, 4.0)])
    assert list(series.total) == [0.0, 3.0, 7.0]
    assert series.between(10**9, 2 * 10**9) == pytest.approx(4.0)
    assert series.between(5 * 10**8, 10**9) == pytest.approx(1.5)
    assert series.between(0, 3 * 10**9) is None  # after the last sample
    assert CumulativeSeries([5], [1.0]).value_at(5) is None  # one sample cannot be interpolated


def test_an_operation_has_the_energy_clock_and_utilisation_of_its_time() -> None:
    """First 2 W at 1 GHz on one of two cores, then 6 W at 2 GHz on both; 10 ms each."""
    power = integrate([(0, 2.0), (10 * MS, 2.0), (10 * MS, 6.0), (20 * MS, 6.0)])
    clock = integrate([(0, 1e6), (10 * MS, 1e6), (10 * MS, 2e6), (20 * MS, 2e6)])
    busy = CumulativeSeries([0, 10 * MS, 20 * MS], [5.0, 5.01, 5.03])
    series = {ENERGY: power, BUSY: busy, f"{CLOCK}4": clock}
    run = Telemetry(OPS[:2], [a_trace(0, 0, 10, 20)], series, cores=2)
    first, second = op_rows(run)
    assert (first.name, first.kind, first.steps, first.ms, first.share) == (*OPS[0], 1, 10.0, 0.5)
    assert (first.energy_mj, second.energy_mj) == (pytest.approx(20), pytest.approx(60))
    assert (first.power_w, second.power_w) == (pytest.approx(2), pytest.approx(6))
    assert (first.util_pct, second.util_pct) == (pytest.approx(50), pytest.approx(100))
    assert (first.clock_mhz, second.clock_mhz) == (
        {4: pytest.approx(1000)},
        {4: pytest.approx(2000)},
    )


def test_values_that_were_not_sampled_are_none() -> None:
    busy = {BUSY: CumulativeSeries([0, 20 * MS], [0.0, 0.01])}
    late = a_trace(9, 50, 10)
    (row,) = op_rows(Telemetry(OPS[:1], [a_trace(0, 0, 10), late], busy))
    assert (row.steps, row.energy_mj, row.power_w, row.clock_mhz) == (2, None, None, {})
    assert row.util_pct == pytest.approx(50)
    (unsampled,) = op_rows(Telemetry(OPS[:1], [late], busy))
    assert unsampled.util_pct is None


def test_equal_steps_have_a_similarity_of_one_and_others_less() -> None:
    same = [a_trace(step, 100 * step, 4, 5, 8) for step in range(4)]
    assert step_similarity(op_spans(same)) == pytest.approx(1.0)
    jitter = [a_trace(step, 100 * step, 4 + 0.04 * step, 5, 8) for step in range(4)]
    assert 0.98 < (step_similarity(op_spans(jitter)) or 0) < 1.0
    longer = [
        a_trace(step, 100 * step, *(8, 10, 16) if step == 3 else (4, 5, 8)) for step in range(4)
    ]
    assert step_similarity(op_spans(longer)) == pytest.approx((3 + 0.5) / 4)
    other = [a_trace(0, 0, 8, 8, 8), a_trace(1, 100, 8, 8, 8), a_trace(2, 200, 0, 0, 8)]
    assert step_similarity(op_spans(other)) == pytest.approx(2 / 3)
    assert step_similarity(op_spans(same[:1])) is None  # one step has nothing to be compared with


def test_the_share_of_time_that_only_moves_data() -> None:
    spans = op_spans([a_trace(0, 0, 4, 5, 8)])
    kinds = [kind for _, kind in OPS]
    assert copy_share(spans, kinds) == pytest.approx(1 / 8)
    assert copy_share(spans, kinds[:1]) is None  # operations without a kind
    assert copy_share([], kinds) is None


def test_telemetry_survives_a_round_trip() -> None:
    content = {
        "ops": {"name": ["a"], "kind": ["conv"]},
        "traces": [a_trace(0, 0, 10)],
        "series": {BUSY: CumulativeSeries([0, 20 * MS], [0.0, 0.02])._asdict()},
        "cores": 1,
    }
    (row,) = op_rows(read_telemetry(pack_telemetry(content)))
    assert (row.name, row.util_pct) == ("a", pytest.approx(100))


@pytest.mark.parametrize("blob", [b"", b"junk", pack_telemetry({})[:-3], pack_telemetry([])])  # type: ignore[arg-type]
def test_other_content_is_rejected(blob: bytes) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_telemetry(blob)


@pytest.mark.parametrize(
    "content",
    [
        {"ops": {"name": [1], "kind": []}},
        {"windows": {"first": [0], "n": []}},
        {"windows": {"first": ["0"]}},
        {"traces": [[0, 0]]},
        {"series": {"energy_j": {"t_ns": [0.5], "total": [1.0]}}},
        {"readings": {"paths": ["/a"], "columns": []}},
        {"cores": None},
    ],
)
def test_malformed_telemetry_is_rejected(content: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="malformed"):
        read_telemetry(pack_telemetry(content))


def test_a_run_that_was_not_traced_has_no_operations() -> None:
    assert op_rows(read_telemetry(pack_telemetry({}))) == ()
