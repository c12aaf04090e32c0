"""Messages are frozen, versioned and limited in size; invalid ones are rejected."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import ValidationError

from tests.builders import SIMULATED, a_phone, a_report, a_run, an_announcement
from workloads.catalogue import bind
from workloads.protocol.base import digest_of, digest_of_bytes
from workloads.protocol.condition import Condition
from workloads.protocol.limits import CHUNK_BYTES_MAX, JOB_BYTES_MAX
from workloads.protocol.messages import PARCEL_ADAPTER, BadMessage, Job, decode, split_into_chunks
from workloads.protocol.metrics import Metric, Provenance, SimulationModel, Source

JOB = Job(
    run=a_run(),
    phone="PH1",
    fence=1,
    lease_timeout_s=30,
    case=bind("sgemm", {}),
    condition=Condition(),
)


def test_messages_survive_a_round_trip() -> None:
    assert decode(Job, JOB.model_dump_json(), JOB_BYTES_MAX) == JOB
    assert decode(Job, JOB.model_dump_json().encode(), JOB_BYTES_MAX) == JOB
    for parcel in (
        a_report(JOB),
        an_announcement(a_phone()),
        *split_into_chunks("ab" * 32, b"x" * 10),
    ):
        assert PARCEL_ADAPTER.validate_json(parcel.model_dump_json()) == parcel


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 2}, "version"),  # of a newer version
        ({"surprise": 1}, "surprise"),  # an unknown field
        ({"phone": "PH1; reboot"}, "phone"),  # a serial with a shell command
        ({"fence": 0}, "fence"),
        ({"lease_timeout_s": float("inf")}, "lease_timeout_s"),
    ],
)
def test_an_invalid_job_is_rejected(change: dict[str, object], field: str) -> None:
    with pytest.raises(BadMessage, match=f"bad Job: {field}"):
        decode(Job, json.dumps(JOB.model_dump(mode="json") | change), JOB_BYTES_MAX)


@pytest.mark.parametrize("content", [None, 3, [], {}, "not json", b"\xff\xfe", "{}", "[" * 10_000])
def test_anything_but_a_valid_job_is_a_bad_message(content: object) -> None:
    with pytest.raises(BadMessage):
        decode(Job, content, JOB_BYTES_MAX)


def test_an_oversized_message_is_rejected_before_it_is_parsed() -> None:
    with pytest.raises(BadMessage, match="at most"):
        decode(Job, "x" * (JOB_BYTES_MAX + 1), JOB_BYTES_MAX)


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        JOB.fence = 2  # type: ignore[misc]


@given(some.binary(max_size=3 * CHUNK_BYTES_MAX))
def test_joined_chunks_are_the_blob(blob: bytes) -> None:
    chunks = split_into_chunks(digest_of_bytes(blob), blob)
    assert b"".join(chunk.content for chunk in chunks) == blob
    assert all(len(chunk.data) <= CHUNK_BYTES_MAX for chunk in chunks)


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest_of({"a": 1, "b": [2, 3]}) == digest_of({"b": [2, 3], "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 2})


def test_a_metric_needs_a_provenance() -> None:
    with pytest.raises(ValidationError):
        Metric(name="step_ms", value=1.0, unit="ms")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("source", "model", "error"),
    [
        (Source.PHONE, SimulationModel.FITTED, 0.1),  # a measured number has no model
        (Source.SIMULATED, None, None),  # a simulated one names its model
        (Source.SIMULATED, SimulationModel.FITTED, None),  # and a fitted one its error
        (
            Source.SIMULATED,
            SimulationModel.EXTRAPOLATED,
            0.1,
        ),  # which is not known for an extrapolation
    ],
)
def test_incomplete_provenance_is_rejected(
    source: Source, model: SimulationModel | None, error: float | None
) -> None:
    with pytest.raises(ValidationError):
        Provenance(source=source, model=model, error_rel=error)
    assert str(SIMULATED) == "simulated (extrapolated, error unknown)"
