"""Messages and values that a hostile client of the broker could write, drawn from a seed."""

import base64
import gzip
import json
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from workloads.lab.celery_setup import celery_app, send_task

Draw = random.Random
Change = Callable[[Draw, dict[str, Any]], object]
EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
WRONG: list[Any] = [
    *(None, True, 0, -1, 1e308, 10**400, "x", "", "\x1b[2J\x00", [], {}, [[]], {"a": 1}),
    *("2026-11-17T10:00:00", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+00:00", 10**18, "NaN"),
    {"__type__": "uuid", "__value__": "x"},
]


def envelope(task: str, argument: object, queue: str) -> dict[str, Any]:
    """Return a message as the broker keeps it, built by Celery itself."""
    app = celery_app("test", "redis://")
    app.conf.broker_url = "memory://"
    with app.producer_or_acquire() as producer:
        name = f"{queue}-{uuid.uuid4()}"
        send_task(app, task, argument, name, 60.0, producer)  # type: ignore[arg-type]
        message: dict[str, Any] = producer.channel._queue_for(name).get()
    message["properties"]["delivery_info"]["routing_key"] = queue
    return message


def body(arguments: object, keywords: object = None, embed: object = None) -> str:
    """Return a body with these arguments."""
    parts = [arguments, {} if keywords is None else keywords, EMBED if embed is None else embed]
    return base64.b64encode(json.dumps(parts).encode()).decode()


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield from _places(value[key], (*path, key))


def _change_place(draw: Draw, message: dict[str, Any]) -> None:
    """Replace, delete or add a field anywhere in the envelope."""
    *parents, last = draw.choice(list(_places(message)))
    target: Any = message
    for key in parents:
        target = target[key]
    action = draw.randrange(3)
    if action == 0 or isinstance(target, list):
        target[last] = draw.choice(WRONG)
    elif action == 1:
        del target[last]
    else:
        target[draw.choice(["compression", "chain", "x", "countdown", "signature"])] = draw.choice(
            WRONG
        )


def _change_body(draw: Draw, message: dict[str, Any]) -> None:
    chain = [{"task": "farm.run", "args": ["x"], "options": {"queue": "farm.host.other"}}]
    message["body"] = draw.choice(
        [
            *("", "!!!", "AAA", base64.b64encode(b"\xff\xfe").decode()),
            body(draw.choice(WRONG)),
            body([draw.choice(WRONG)]),
            body([[draw.choice(WRONG)]]),
            body([["x"] * 5000]),
            body(["[" * 50_000]),
            body(["{}"], {"x": 1}),
            body(["{}"], None, {**EMBED, "chain": chain}),
            body(["{}"], None, {**EMBED, draw.choice(list(EMBED)): draw.choice(WRONG)}),
            base64.b64encode(b"[" * 100_000).decode(),
        ]
    )


def _compress(draw: Draw, message: dict[str, Any]) -> None:
    packed = gzip.compress(b"[" + b" " * draw.randrange(10**6, 5 * 10**6) + b"]")
    message["headers"]["compression"] = draw.choice(["application/x-gzip", "bzip2", "x"])
    message["body"] = base64.b64encode(packed).decode()


def _change_task(draw: Draw, message: dict[str, Any]) -> None:
    names = ["celery.backend_cleanup", "farm.run", "farm.deliver", "celery.chain", "os.system", []]
    message["headers"]["task"] = draw.choice(names)
    message["properties"]["delivery_info"]["routing_key"] = draw.choice(["farm.host.x", "", "x"])


def _change_times(draw: Draw, message: dict[str, Any]) -> None:
    field = draw.choice(["eta", "expires", "timelimit", "retries", "root_id", "group"])
    message["headers"][field] = draw.choice(WRONG)


CHANGES: list[Change] = [_change_place, _change_body, _compress, _change_task, _change_times]


def _raw(draw: Draw, valid: bytes) -> bytes:
    """Return bytes that are not a message, or a damaged one."""
    cut = draw.randrange(len(valid))
    return draw.choice(
        [
            *(b"", b"[]", b'""', b"null", b"0", b"\xff" * 40, b"{" * 100_000, b"[" * 10**6),
            *(valid[:cut], valid[cut:], valid + valid, b"\x80\x04N."),
            valid[:cut] + draw.randbytes(8) + valid[cut:],
            b" " * 10_000_000,
            valid.replace(b"{", b'{"__proto__": 1,', 1),
        ]
    )


def hostile_messages(
    task: str, arguments: list[Any], queue: str, count: int, seed: int
) -> Iterator[bytes]:
    """Yield messages for a queue; a few of them happen to be harmless or even valid."""
    draw = random.Random(seed)
    template = json.dumps(envelope(task, arguments[0], queue))
    for _ in range(count):
        message = json.loads(template)
        if draw.random() < 0.25:
            yield _raw(draw, template.encode())
            continue
        if draw.random() < 0.3:  # a perfect envelope around bad content
            message["body"] = body([draw.choice(arguments)])
            yield json.dumps(message).encode()
            continue
        for _ in range(draw.choice([1, 1, 2])):
            try:
                draw.choice(CHANGES)(draw, message)
            except (KeyError, TypeError, IndexError):
                break  # the first change removed what the second one needs
        yield json.dumps(message).encode()


def hostile_content(valid: dict[str, Any], count: int, seed: int) -> list[str]:
    """Return texts that differ from a valid message in one field or in their syntax."""
    draw = random.Random(seed)
    texts = []
    for _ in range(count):
        message = json.loads(json.dumps(valid))
        _change_place(draw, message)
        text = json.dumps(message)
        texts.append(draw.choice([text, text, text[: draw.randrange(len(text))], f"[{text}]"]))
    return texts
