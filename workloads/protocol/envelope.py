"""Checks messages before Celery receives them; a message of any other form is rejected.

Celery trusts its broker: a message may name any task, request forwarding (a canvas), decompression,
a delay or a reply, and a malformed one ends the worker. So the size is checked before anything is
parsed, then every field of the envelope, then the arguments.
"""

import base64
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from workloads.protocol.base import Moment, WireModel
from workloads.protocol.limits import (
    DELIVERY_BYTES_MAX,
    DELIVERY_PARCELS_MAX,
    ENVELOPE_BYTES_MAX,
    ENVELOPE_FACTOR,
    JOB_BYTES_MAX,
)
from workloads.protocol.messages import COMMAND, DELIVER, RUN, BadMessage, bad_message

TaskId = Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]


class _Dashed(WireModel):
    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))


class Headers(WireModel):
    """The headers of a task that is executed once, at once, and not answered."""

    lang: Literal["py"]
    task: Literal["farm.run", "farm.command", "farm.deliver"]
    id: TaskId
    root_id: TaskId
    shadow: None
    eta: None
    expires: Moment | None
    group: None
    group_index: None
    retries: Literal[0]
    timelimit: tuple[None, None]
    parent_id: None
    argsrepr: Literal[""]
    kwargsrepr: Literal["{}"]
    origin: str = Field(max_length=400)
    ignore_result: Literal[True]
    replaced_task_nesting: Literal[0]
    stamped_headers: None
    stamps: dict[str, None] = Field(max_length=0)


class DeliveryInfo(WireModel):
    """The queue that a message was sent to."""

    exchange: Literal[""]
    routing_key: str


class Properties(WireModel):
    """How a message was sent."""

    correlation_id: TaskId
    reply_to: Literal[""]
    argsrepr: Literal[""] = ""
    delivery_mode: Literal[2]
    expiration: str | None = Field(default=None, pattern=r"^-?[0-9]{1,12}$")
    delivery_info: DeliveryInfo
    priority: Literal[0]
    body_encoding: Literal["base64"]
    delivery_tag: TaskId


class Envelope(_Dashed):
    """A message as the broker keeps it."""

    body: str
    content_encoding: Literal["utf-8"]
    content_type: Literal["application/json"]
    headers: Headers
    properties: Properties


class NoCanvas(WireModel):
    """No task follows this one."""

    callbacks: None
    errbacks: None
    chain: None
    chord: None


_NoKeywords = Annotated[dict[str, None], Field(max_length=0)]
_Parcels = Annotated[list[str], Field(max_length=DELIVERY_PARCELS_MAX)]
_TEXT: TypeAdapter[object] = TypeAdapter(tuple[tuple[str], _NoKeywords, NoCanvas])
_LIST: TypeAdapter[object] = TypeAdapter(tuple[tuple[_Parcels], _NoKeywords, NoCanvas])
# By task: the arguments, and how long all of them together may be.
_ARGUMENTS = {
    RUN: (_TEXT, JOB_BYTES_MAX),
    COMMAND: (_TEXT, JOB_BYTES_MAX),
    DELIVER: (_LIST, DELIVERY_BYTES_MAX),
}


def check_envelope(queue: str, content: bytes, tasks: Mapping[str, int]) -> None:
    """Raise BadMessage unless the content is a message to this queue with one of the tasks.

    `tasks` has the names that are accepted, each with the size of its largest message.
    """
    if len(content) > max(tasks.values()):
        raise BadMessage(f"bad message: {len(content)} bytes are too many")
    with bad_message("message"):
        envelope = Envelope.model_validate_json(content, strict=True)
    task = envelope.headers.task
    if len(content) > tasks.get(task, 0):
        raise BadMessage(f"bad message: {task} of {len(content)} bytes is not accepted here")
    if envelope.properties.delivery_info.routing_key != queue:
        raise BadMessage("bad message: it was sent to another queue")
    arguments, limit = _ARGUMENTS[task]
    try:
        body = base64.b64decode(envelope.body, validate=True)
    except ValueError:
        raise BadMessage("bad message: its body is not base64") from None
    if len(body) > ENVELOPE_FACTOR * limit:
        raise BadMessage(f"bad message: a body of {len(body)} bytes is too long")
    with bad_message("arguments"):
        arguments.validate_json(body, strict=True)


def size_limit(task: str) -> int:
    """Return the size of the largest message with this task."""
    return ENVELOPE_FACTOR * _ARGUMENTS[task][1] + ENVELOPE_BYTES_MAX


class MessageFilter:
    """Admits or drops messages; counts the dropped ones by queue."""

    def __init__(self, tasks: tuple[str, ...], on_drop: Callable[[str, str], None]) -> None:
        self._tasks = {task: size_limit(task) for task in tasks}
        self._on_drop = on_drop
        self.dropped: Counter[str] = Counter()

    def admits(self, queue: str, content: bytes) -> bool:
        """Return whether Celery may see a message."""
        try:
            check_envelope(queue, content, self._tasks)
        except BadMessage as error:
            self.drop(queue, str(error))
            return False
        return True

    def drop(self, queue: str, reason: str) -> None:
        """Count a message that is not used."""
        self.dropped[queue] += 1
        self._on_drop(queue, reason)
