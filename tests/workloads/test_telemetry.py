"""Telemetry: traced operations and sampled series, on traces written by hand."""

import json
import tracemalloc
import zlib

import pytest

from workloads.protocol.faults import InvalidRequest
from workloads.protocol.limits import MIB, TELEMETRY_BYTES_MAX
from workloads.protocol.restored_memory import RestoredMemory
from workloads.protocol.telemetry import (
    BUSY,
    ENERGY,
    CumulativeSeries,
    SampledSeries,
    copy_share,
    integrate,
    op_spans,
    pack_telemetry,
    read_telemetry,
    sampled,
    series_columns,
    step_similarity,
    unpack_telemetry,
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
        "series": {
            BUSY: series_columns(CumulativeSeries([0, 20 * MS], [0.0, 0.02])),
            ENERGY: series_columns(sampled([(0, 3.0), (20 * MS, 3.0)])),
        },
        "cores": 1,
    }
    telemetry = read_telemetry(pack_telemetry(content))
    assert telemetry.ops == (("a", "conv"),)
    assert telemetry.series[BUSY].between(0, 10 * MS) == pytest.approx(0.01)
    assert telemetry.series[ENERGY].between(0, 10 * MS) == pytest.approx(0.03)
    assert isinstance(telemetry.series[ENERGY], SampledSeries)


@pytest.mark.parametrize("rates", [[0.07, 0.29], [1.5, 2 / 1024], [710_400.0], [1 / 3], [1e-300]])
def test_a_series_in_parts_of_its_unit_keeps_its_values(rates: list[float]) -> None:
    columns = series_columns(sampled(list(enumerate(rates))))
    energy = read_telemetry(pack_telemetry({"series": {ENERGY: columns}})).series[ENERGY]
    assert isinstance(energy, SampledSeries)
    assert energy.rate == rates


def test_a_series_at_the_times_of_readings_does_not_repeat_them() -> None:
    read_ns = [0, 10 * MS, 20 * MS]
    columns = series_columns(sampled([(10 * MS, 3.0), (20 * MS, 3.0)]), read_ns)
    assert columns == {"row": 1, "rate": [3, 3], "per": 1}
    content = {"readings": {"t_ns": read_ns}, "series": {ENERGY: columns}}
    energy = read_telemetry(pack_telemetry(content)).series[ENERGY]
    assert list(energy.t_ns) == read_ns[1:]
    assert "t_ns" in series_columns(energy, [0, 10 * MS, 15 * MS, 20 * MS])


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
        {"series": {"energy_j": {"t_ns": [1, 2], "rate": [1.0]}}},
        {"series": {"energy_j": {"row": 1, "rate": [1.0]}}},
        {"series": {"energy_j": {"t_ns": [1], "rate": [1], "per": 0}}},
        {"series": {"energy_j": {"row": -1, "rate": [1.0]}}, "readings": {"t_ns": [1]}},
        {"windows": {"t_ns": {"gaps": [0, 1]}}},
        {"readings": {"columns": [{"texts": ["a"], "choices": [1]}], "paths": ["/a"]}},
        {"readings": {"columns": [{"between": ["a"], "|": [[1]]}], "paths": ["/a"]}},
        {"readings": {"paths": ["/a"], "columns": []}},
        {"cores": None},
    ],
)
def test_malformed_telemetry_is_rejected(content: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="malformed"):
        read_telemetry(pack_telemetry(content))


BOMBS = {
    "texts between numbers": {"a": {"between": ["x" * 10**4, ""], "|": [{"+": [1] * 10**4}]}},
    "rows": {"a": {"|": [{"+": [1] * 10**5}]}},
    "texts": {"a": {"texts": [[0] * 10**4], "choices": [0] * 10**4}},
    "numbers": {"a": {"+": [1] * 10**5}},
    "a long number": {"a": {"+": [10**4000] + [0] * 10**4}},
    "empty lists": {"a": [[] for _ in range(10**5)]},
    "empty tables": {"a": [{} for _ in range(10**5)]},
    "a long window": {"windows": {"n": [10**4000], "ns": [1]}},
}


@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
def test_few_bytes_do_not_become_gigabytes(content: dict[str, object]) -> None:
    """A host or a bundle may send anything; the API and the exports read it."""
    blob = zlib.compress(json.dumps(content).encode(), 9)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="cannot be read"):
            read_telemetry(blob, RestoredMemory(2 * MIB))
        assert tracemalloc.get_traced_memory()[1] < 6 * MIB
    finally:
        tracemalloc.stop()


def test_telemetry_of_a_long_run_is_read() -> None:
    """An hour of 24 sensors may take a 24th of what the telemetry of a day may take."""
    seconds, columns = 3600, 24
    readings = {
        "t_ns": [second * 10**9 for second in range(seconds)],
        "paths": [f"/sys/zone{number}" for number in range(columns)],
        "columns": [[30_000 + at % 977 for at in range(seconds)] for _ in range(columns)],
    }
    blob = pack_telemetry({"readings": readings})
    found = read_telemetry(blob, RestoredMemory(TELEMETRY_BYTES_MAX // 24)).readings
    assert len(found.columns) == columns


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"a": [], "b": [[]], "c": [1] * 8, "d": "x", "e": None, "f": True},
        {"a": list(range(0, 900, 7)), "b": [2**62, -(2**62)] * 10, "c": [True] * 20},
        {"a": [[1, 2, 3]] * 20, "b": [[1], [1, 2]] * 10, "c": [[1.5, 2]] * 20, "d": [[]] * 20},
        {"a": {"b": [{"c": list(range(20))}] * 20}, "d": [1, 2.5] * 10},
        {"a": ["x", None, "y"] * 5, "b": [str(number) for number in range(20)], "c": [None] * 20},
        {"windows": {"first": [0, 3, 7], "n": [3, 4, 1], "t_ns": [9, 20, 35], "ns": [11, 12, 5]}},
        {"a": [f"0:{n}/7{n} x{n:03} 9" for n in range(20)], "b": [f"{n}" for n in range(20)]},
        {"a": [f"a{n}b" for n in range(20)], "b": [f"a{n}b{n}"[: 3 + n] for n in range(20)]},
        {"windows": {"first": [2], "n": [1], "t_ns": [5.5], "ns": [1]}},
    ],
)
def test_packing_changes_nothing(content: dict[str, object]) -> None:
    assert unpack_telemetry(pack_telemetry(content)) == content


@pytest.mark.parametrize("blob", [b"", b"\x00", b"x" * 100, pack_telemetry({"a": 1})[:-1]])
def test_a_blob_that_is_cut_or_no_blob_is_refused(blob: bytes) -> None:
    with pytest.raises(InvalidRequest, match="malformed"):
        unpack_telemetry(blob)
