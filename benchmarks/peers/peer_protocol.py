"""The code that all peers share: data, turns and the proof of training. Imports no farm code.

A peer is a process. Its first input line is a JSON object that describes the network. Each further
line, `{"seconds": S}`, requests a turn, and the peer answers with the times of its steps. Times
count only if the loss falls and every parameter changes: `{"prove": N}` trains one batch up to N
times until the loss has fallen, and every answer contains how many tensors changed.
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
    """An engine that trains a network."""

    parameters: int

    def step(self, batch: int) -> float:
        """Train on the batch with this number and return the loss."""

    def values(self) -> "dict[str, np.ndarray[Any, Any]]":
        """Return a copy of every learned tensor."""


def load_batches(description: dict[str, Any]) -> "list[tuple[Any, Any]]":
    """Return images and labels: those of values_file, or one noisy pattern per class in -1..1."""
    if "values_file" in description:
        values = np.load(description["values_file"])
        numbers = range(description["batches"])
        return [(values[f"image{n}"], values[f"label{n}"].astype(np.int64)) for n in numbers]
    rng = np.random.default_rng(7)
    shape, classes = tuple(description["image"]), description["classes"]
    if description["tokens"]:
        follows = rng.permutation(classes)  # the text repeats: every token has one successor
        firsts = rng.integers(0, classes, (description["batches"], description["batch"], *shape))
        return [(tokens, follows[tokens]) for tokens in firsts]
    patterns = rng.uniform(-0.8, 0.8, (classes, *shape)).astype(np.float32)
    batches = []
    for number in range(description["batches"]):
        first = number * description["batch"]
        labels = np.arange(first, first + description["batch"]) % classes
        noise = rng.normal(0, 0.2, (len(labels), *shape)).astype(np.float32)
        batches.append((np.clip(patterns[labels] + noise, -1, 1), labels.astype(np.int64)))
    return batches


def initial_values(description: dict[str, Any]) -> "dict[str, dict[str, np.ndarray[Any, Any]]]":
    """Return the initial values of every parameter: those of values_file, or by the farm's rule."""
    rng = np.random.default_rng(11)
    stored = np.load(description["values_file"]) if "values_file" in description else {}
    initial: dict[str, dict[str, Any]] = {}
    for node in description["nodes"]:
        for name, rule in node["initializers"].items():
            full_name = f"{node['name']}.{name}"
            if full_name in stored:
                values = stored[full_name]
            elif rule["kind"] == "uniform":
                values = rng.uniform(-rule["value"], rule["value"], rule["shape"])
            elif rule["kind"] == "normal":
                values = rule["value"] * rng.standard_normal(rule["shape"])
            else:
                values = np.full(rule["shape"], rule["value"] if rule["kind"] == "constant" else 0)
            initial.setdefault(node["name"], {})[name] = values.astype(np.float32)
    return initial


def serve(make: Callable[[dict[str, Any]], Turn]) -> None:
    """Build what the first line describes, then answer every further line."""
    turn = make(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        request = json.loads(line)
        answer = turn(float(request.get("seconds", 0)), int(request.get("prove", 0)))
        sys.stdout.write("turn " + json.dumps(answer) + "\n")
        sys.stdout.flush()


def training_turns(peer: Peer, batch_count: int) -> Turn:
    """Return the function that runs a turn of training."""
    before = peer.values()
    steps_done = 0

    def answer(times: list[int], losses: list[float]) -> dict[str, Any]:
        after = peer.values()
        return {
            "times_ns": times,
            "losses": losses,
            "parameters": peer.parameters,
            "tensors": len(before),
            "moved": sum(not np.array_equal(before[name], after[name]) for name in before),
        }

    def turn(seconds: float, prove: int) -> dict[str, Any]:
        nonlocal steps_done
        losses: list[float] = []
        while len(losses) < prove and not has_fallen(losses):
            losses.append(peer.step(0))
        if prove:
            return answer([], losses)
        times: list[int] = []
        deadline = time.perf_counter_ns() + int(seconds * 1e9)
        while len(times) < STEPS_MIN or time.perf_counter_ns() < deadline:
            start = now_ns()
            losses.append(peer.step(steps_done % batch_count))
            times.append(now_ns() - start)
            steps_done += 1
        return answer(times, losses)

    return turn


def has_fallen(losses: list[float]) -> bool:
    """Whether the last two losses are below 90 % of the first: dropout makes single ones jump."""
    return len(losses) >= 4 and max(losses[-2:]) < 0.9 * losses[0]


def matmul_turns(multiply: Callable[[], Any]) -> Turn:
    """Return the function that runs a turn of matrix products."""

    def turn(seconds: float, _: int) -> dict[str, Any]:
        times: list[int] = []
        deadline = time.perf_counter_ns() + int(seconds * 1e9)
        while len(times) < STEPS_MIN or time.perf_counter_ns() < deadline:
            start = now_ns()
            multiply()
            times.append(now_ns() - start)
        return {"times_ns": times}

    return turn


def random_matrices(description: dict[str, Any]) -> "tuple[Any, Any]":
    """Return two square matrices with values in -1..1."""
    rng = np.random.default_rng(3)
    n = description["n"]
    a = rng.uniform(-1, 1, (n, n)).astype(np.float32)
    b = rng.uniform(-1, 1, (n, n)).astype(np.float32)
    return a, b


def check_product(c: Any, a: Any, b: Any) -> None:
    """Exit if a product is wrong, so that its time does not count."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    worst = np.abs(np.asarray(c, np.float64) - exact).max() / np.sqrt(len(a))
    if not worst < 1e-4:
        raise SystemExit(f"the product is wrong: relative error {worst:g}")
