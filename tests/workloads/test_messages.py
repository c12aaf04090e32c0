"""Messages: frozen, versioned, limited, and refused in a sentence when they are not as agreed."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import ValidationError

from tests.builders import SIMULATED, a_phone, a_report, a_run, a_sighting
from workloads.catalogue import bind
from workloads.condition import Condition
from workloads.measure import Metric, Model, Provenance, Source
from workloads.messages import (
    CHUNK_BYTES_MAX,
    JOB_BYTES_MAX,
    PARCEL,
    BadMessage,
    Job,
    chunks_of,
    decode,
)
from workloads.noun import digest_of, digest_of_bytes

JOB = Job(
    run=a_run(), phone="PH1", fence=1, lease_s=30, case=bind("sgemm", {}), condition=Condition()
)


def test_what_goes_in_comes_out() -> None:
    assert JOB == decode(Job, JOB.model_dump_json(), JOB_BYTES_MAX)
    assert JOB == decode(Job, JOB.model_dump(mode="json"), JOB_BYTES_MAX)
    for parcel in (a_report(JOB), a_sighting(a_phone()), *chunks_of("ab" * 32, b"x" * 10)):
        assert parcel == PARCEL.validate_json(parcel.model_dump_json())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "version"),  # from a newer farm
        ({"surprise": 1}, "surprise"),  # an unknown field
        ({"phone": "PH1; reboot"}, "phone"),  # a serial that is a command
        ({"fence": 0}, "fence"),
        ({"lease_s": float("inf")}, "lease_s"),
    ],
)
def test_a_job_that_is_not_as_agreed_is_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(BadMessage, match=f"bad Job: {says}"):
        decode(Job, JOB.model_dump(mode="json") | change, JOB_BYTES_MAX)


@pytest.mark.parametrize("content", [None, 3, [], "not json", b"\xff\xfe", "{}", "[" * 10_000])
def test_no_content_is_too_strange_to_be_refused(content: object) -> None:
    with pytest.raises(BadMessage):
        decode(Job, content, JOB_BYTES_MAX)


def test_an_oversized_message_is_refused_unread() -> None:
    with pytest.raises(BadMessage, match="exceeds"):
        decode(Job, "x" * (JOB_BYTES_MAX + 1), JOB_BYTES_MAX)


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        JOB.fence = 2  # type: ignore[misc]


@given(some.binary(max_size=3 * CHUNK_BYTES_MAX))
def test_chunks_put_together_are_the_blob(blob: bytes) -> None:
    chunks = chunks_of(digest_of_bytes(blob), blob)
    assert blob == b"".join(chunk.content for chunk in chunks)
    assert all(len(chunk.data) <= CHUNK_BYTES_MAX for chunk in chunks)


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest_of({"a": 1, "b": [2, 3]}) == digest_of({"b": [2, 3], "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 2})


def test_a_metric_without_provenance_does_not_exist() -> None:
    with pytest.raises(ValidationError):
        Metric(name="step_ms", value=1.0, unit="ms")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("source", "model", "error"),
    [
        (Source.PHONE, Model.FITTED, 0.1),  # a measured number has no model
        (Source.SIMULATED, None, None),  # a simulated one must name its own
        (Source.SIMULATED, Model.FITTED, None),  # and a fitted one its error
        (Source.SIMULATED, Model.EXTRAPOLATED, 0.1),  # which an extrapolation cannot know
    ],
)
def test_provenance_cannot_be_half_told(
    source: Source, model: Model | None, error: float | None
) -> None:
    with pytest.raises(ValidationError):
        Provenance(source=source, model=model, error_rel=error)
    assert "simulated (extrapolated)" == str(SIMULATED)
