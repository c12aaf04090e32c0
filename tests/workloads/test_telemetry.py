"""The timeline: operations joined with what was sampled beside them, on traces made by hand."""

import pytest

from workloads.fault import Refused
from workloads.timeline import (
    BUSY,
    CLOCK,
    ENERGY,
    Course,
    Telemetry,
    copied_share,
    course_of,
    join,
    read_blob,
    spans_of,
    step_similarity,
    telemetry_of,
    write_blob,
)

MS = 10**6
OPS = (("conv.forward", "conv"), ("pool.forward", "copy"), ("conv.update", "update"))


def a_trace(
    step: int, t_ms: int, *ends_ms: float, first: int = 0
) -> tuple[int, int, int, list[int]]:
    return step, t_ms * MS, first, [round(end * MS) if end >= 0 else -1 for end in ends_ms]


def test_an_operation_begins_where_the_one_before_it_ended() -> None:
    spans = spans_of([a_trace(3, 100, 2, -1, 5), a_trace(3, 105, 1, first=3)])
    found = [(span.op, span.start_ns // MS, span.end_ns // MS) for span in spans]
    assert found == [(0, 100, 102), (2, 102, 105), (3, 105, 106)]


def test_a_course_is_read_between_its_moments() -> None:
    course = course_of([(0, 2.0), (10**9, 4.0), (2 * 10**9, 4.0)])
    assert list(course.total) == [0.0, 3.0, 7.0]
    assert course.between(10**9, 2 * 10**9) == pytest.approx(4.0)
    assert course.between(5 * 10**8, 10**9) == pytest.approx(1.5)
    assert course.between(0, 3 * 10**9) is None  # nobody looked that late
    assert Course([5], [1.0]).at(5) is None  # one look is no course


def test_an_operation_has_the_energy_the_clock_and_the_load_of_its_time() -> None:
    """First 2 W at 1 GHz on one of two cores, then 6 W at 2 GHz on both; 10 ms each."""
    power = course_of([(0, 2.0), (10 * MS, 2.0), (10 * MS, 6.0), (20 * MS, 6.0)])
    clock = course_of([(0, 1e6), (10 * MS, 1e6), (10 * MS, 2e6), (20 * MS, 2e6)])
    busy = Course([0, 10 * MS, 20 * MS], [5.0, 5.01, 5.03])
    courses = {ENERGY: power, BUSY: busy, f"{CLOCK}4": clock}
    run = Telemetry(OPS[:2], tuple(spans_of([a_trace(0, 0, 10, 20)])), courses, cores=2)
    calm, hard = join(run)
    assert (calm.name, calm.kind, calm.steps, calm.ms, calm.share) == (*OPS[0], 1, 10.0, 0.5)
    assert (calm.energy_mj, hard.energy_mj) == (pytest.approx(20), pytest.approx(60))
    assert (calm.power_w, hard.power_w) == (pytest.approx(2), pytest.approx(6))
    assert (calm.util_pct, hard.util_pct) == (pytest.approx(50), pytest.approx(100))
    assert (calm.clock_mhz, hard.clock_mhz) == (
        {4: pytest.approx(1000)},
        {4: pytest.approx(2000)},
    )


def test_what_is_not_offered_stays_empty() -> None:
    """No power source, no energy; a step that nobody sampled says nothing of its load."""
    busy = {BUSY: Course([0, 20 * MS], [0.0, 0.01])}
    late = a_trace(9, 50, 10)
    (row,) = join(Telemetry(OPS[:1], tuple(spans_of([a_trace(0, 0, 10), late])), busy))
    assert (row.steps, row.energy_mj, row.power_w, row.clock_mhz) == (2, None, None, {})
    assert row.util_pct == pytest.approx(50)
    (unseen,) = join(Telemetry(OPS[:1], tuple(spans_of([late])), busy))
    assert unseen.util_pct is None


def test_steps_that_repeat_are_alike_and_others_are_not() -> None:
    """1: the same over and over; less the more of a step's time went elsewhere."""
    same = [a_trace(step, 100 * step, 4, 5, 8) for step in range(4)]
    assert step_similarity(spans_of(same)) == pytest.approx(1.0)
    jitter = [a_trace(step, 100 * step, 4 + 0.04 * step, 5, 8) for step in range(4)]
    assert 0.98 < (step_similarity(spans_of(jitter)) or 0) < 1.0
    longer = [
        a_trace(step, 100 * step, *(8, 10, 16) if step == 3 else (4, 5, 8)) for step in range(4)
    ]
    assert step_similarity(spans_of(longer)) == pytest.approx((3 + 0.5) / 4)
    other = [a_trace(0, 0, 8, 8, 8), a_trace(1, 100, 8, 8, 8), a_trace(2, 200, 0, 0, 8)]
    assert step_similarity(spans_of(other)) == pytest.approx(2 / 3)
    assert step_similarity(spans_of(same[:1])) is None  # like itself, which says nothing


def test_the_share_of_time_that_only_moves_data() -> None:
    spans = spans_of([a_trace(0, 0, 4, 5, 8)])
    kinds = [kind for _, kind in OPS]
    assert copied_share(spans, kinds) == pytest.approx(1 / 8)
    assert copied_share(spans, kinds[:1]) is None  # operations that nobody named
    assert copied_share([], kinds) is None


def test_a_blob_is_read_back_and_joined() -> None:
    content = {
        "ops": {"name": ["a"], "kind": ["conv"]},
        "traces": [a_trace(0, 0, 10)],
        "courses": {BUSY: Course([0, 20 * MS], [0.0, 0.02])._asdict()},
        "cores": 1,
    }
    (row,) = join(telemetry_of(read_blob(write_blob(content))))
    assert (row.name, row.util_pct) == ("a", pytest.approx(100))


@pytest.mark.parametrize("blob", [b"", b"junk", write_blob({})[:-3], write_blob([])])  # type: ignore[arg-type]
def test_what_is_no_telemetry_is_refused(blob: bytes) -> None:
    with pytest.raises(Refused, match="cannot be read"):
        read_blob(blob)


@pytest.mark.parametrize("content", [{}, {"ops": None}, {"ops": {"name": [1], "kind": []}}])
def test_a_run_that_was_not_traced_says_so(content: dict[str, object]) -> None:
    with pytest.raises(Refused, match="not traced"):
        telemetry_of(content)
