"""What the peers share: their data, their turns, and the proof that they train. No farm in here.

A peer is a process. It reads one JSON object on its first line, the network; then a line for every
turn, `{"seconds": S}`, and answers each with the times of its steps. A time is only worth something
if the loss falls and every parameter moves: `{"prove": N}` trains one batch up to N times until it
has, and every answer says what moved.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

STEPS_MIN = 3
now_ns = time.process_time_ns if os.environ.get("PEER_CLOCK") == "cpu" else time.perf_counter_ns


Turn = Callable[[float, int], dict[str, Any]]


class Peer(Protocol):
    """An engine with a network that trains."""

    parameters: int

    def step(self, batch: int) -> float:
        """Train one batch, by number; answer the loss."""

    def values(self) -> "dict[str, np.ndarray[Any, Any]]":
        """Every learned tensor, as it is now."""


def batches(description: dict[str, Any]) -> "list[tuple[Any, Any]]":
    """Pictures of a class under noise, from -1 to 1, and their classes; or those that are given."""
    if "given" in description:
        given = np.load(description["given"])
        count = description["batches"]
        return [(given[f"image{at}"], given[f"label{at}"].astype(np.int64)) for at in range(count)]
    chance = np.random.default_rng(7)
    shape, classes = tuple(description["image"]), description["classes"]
    ideals = chance.uniform(-0.8, 0.8, (classes, *shape)).astype(np.float32)
    made = []
    for at in range(description["batches"]):
        first = at * description["batch"]
        labels = np.arange(first, first + description["batch"]) % classes
        noise = chance.normal(0, 0.2, (len(labels), *shape)).astype(np.float32)
        made.append((np.clip(ideals[labels] + noise, -1, 1), labels.astype(np.int64)))
    return made


def first_values(description: dict[str, Any]) -> "dict[str, dict[str, np.ndarray[Any, Any]]]":
    """The first values of every parameter, by the rule that the farm uses; or those given."""
    chance = np.random.default_rng(11)
    given = np.load(description["given"]) if "given" in description else {}
    made: dict[str, dict[str, Any]] = {}
    for node in description["nodes"]:
        for name, rule in node["first"].items():
            full = f"{node['name']}.{name}"
            if full in given:
                values = given[full]
            elif rule["kind"] == "uniform":
                values = chance.uniform(-rule["value"], rule["value"], rule["shape"])
            else:
                values = np.full(rule["shape"], rule["value"] if rule["kind"] == "constant" else 0)
            made.setdefault(node["name"], {})[name] = values.astype(np.float32)
    return made


def take_turns(make: Callable[[dict[str, Any]], Turn]) -> None:
    """Build what the first line describes, then answer every line until there are no more."""
    turn = make(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        asked = json.loads(line)
        answer = turn(float(asked.get("seconds", 0)), int(asked.get("prove", 0)))
        sys.stdout.write("turn " + json.dumps(answer) + "\n")
        sys.stdout.flush()


def trainer(peer: Peer, count: int) -> Turn:
    """Turns of a peer that trains on so many batches."""
    before = peer.values()
    done = 0

    def told(times: list[int], losses: list[float]) -> dict[str, Any]:
        after = peer.values()
        return {
            "times_ns": times,
            "losses": losses,
            "parameters": peer.parameters,
            "tensors": len(before),
            "moved": sum(not np.array_equal(before[name], after[name]) for name in before),
        }

    def turn(seconds: float, prove: int) -> dict[str, Any]:
        nonlocal done
        losses: list[float] = []
        while len(losses) < prove and not has_fallen(losses):
            losses.append(peer.step(0))
        if prove:
            return told([], losses)
        times: list[int] = []
        until = time.perf_counter_ns() + int(seconds * 1e9)
        while len(times) < STEPS_MIN or time.perf_counter_ns() < until:
            began = now_ns()
            losses.append(peer.step(done % count))
            times.append(now_ns() - began)
            done += 1
        return told(times, losses)

    return turn


def has_fallen(losses: list[float]) -> bool:
    """Whether the loss of one batch went down for good: dropout makes it jump."""
    return len(losses) >= 4 and max(losses[-2:]) < 0.9 * losses[0]


def multiplier(product: Callable[[], Any]) -> Turn:
    """Turns of a peer that multiplies two matrices, over and over."""

    def turn(seconds: float, _: int) -> dict[str, Any]:
        times: list[int] = []
        until = time.perf_counter_ns() + int(seconds * 1e9)
        while len(times) < STEPS_MIN or time.perf_counter_ns() < until:
            began = now_ns()
            product()
            times.append(now_ns() - began)
        return {"times_ns": times}

    return turn


def matrices(description: dict[str, Any]) -> "tuple[Any, Any]":
    """Two square matrices of small values."""
    chance = np.random.default_rng(3)
    n = description["n"]
    a = chance.uniform(-1, 1, (n, n)).astype(np.float32)
    b = chance.uniform(-1, 1, (n, n)).astype(np.float32)
    return a, b


def check_product(c: Any, a: Any, b: Any) -> None:
    """A product that is wrong has no speed."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    worst = np.abs(np.asarray(c, np.float64) - exact).max() / np.sqrt(len(a))
    if not worst < 1e-4:
        raise SystemExit(f"the product is off by {worst:g}")
