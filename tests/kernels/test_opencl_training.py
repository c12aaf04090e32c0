"""Perceptrons trained on the device: the same network, however its data get there."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from kernels.harness.cli import kernels
from kernels.harness.device import Device
from kernels.harness.feeding import WAYS, Events
from kernels.harness.perceptron import Perceptron, a_lesson, reference_steps
from kernels.harness.study import phones
from kernels.harness.train import (
    TOLERANCE,
    Crossing,
    break_even,
    crossings,
    ratio_with_interval,
)


@pytest.mark.parametrize("way", WAYS)
def test_a_perceptron_is_the_same_however_it_is_fed(device: Device, way: str) -> None:
    widths, steps = (21, 16, 13, 5), 5  # that fit no vector
    lesson = a_lesson(widths, batch=7, batches=3)
    net, events = Perceptron(device, widths, 7), Events()
    step = WAYS[way](net, lesson)
    for number in range(steps):
        step(number, events)
    device.finish()
    pairs = zip(net.parameters(), reference_steps(widths, lesson, steps), strict=True)
    assert [] == [1 for seen, right in pairs if np.abs(seen - right).max() > TOLERANCE]
    assert (9 if way == "copied" else 7) * steps == len(events.kernels)
    assert {"copied": 42, "preloaded": 0}.get(way, 2) * steps == len(events.copies)


def test_a_perceptron_that_starts_over_learns_the_same_bit_by_bit(device: Device) -> None:
    lesson = a_lesson((16, 16), 8, 2)
    net = Perceptron(device, (16, 16), 8)
    step, learned = WAYS["preloaded"](net, lesson), []
    for _ in range(2):
        net.reset()
        for number in range(20):
            step(number, Events())
        learned.append(net.parameters())
    assert all(np.array_equal(one, other) for one, other in zip(*learned, strict=True))


def test_training_is_told_as_json_with_its_source(device_number: str) -> None:
    words = ["train", "--models", "mlp-1", "--rounds", "2", "--json", "--device", device_number]
    said = CliRunner().invoke(kernels, words)
    told = json.loads(said.stdout)
    assert ("host", ["mlp-1"]) == (told["source"], [row["name"] for row in told["models"]])
    assert set(WAYS) == set(told["models"][0]["gain"])
    assert "nothing of a phone's GPU" in told["note"]


def test_a_model_that_is_not_there_is_refused_by_name(device_number: str) -> None:
    said = CliRunner().invoke(kernels, ["train", "--models", "mlp-9", "--device", device_number])
    assert "there is no 'mlp-9'" in str(said.exception)


def test_a_ratio_has_an_interval_that_holds_it() -> None:
    ratio, low, high = ratio_with_interval([2.0, 2.1, 1.9, 2.0], [1.0, 1.05, 0.95, 1.0])
    assert low <= ratio <= high
    assert ratio == pytest.approx(2.0)


def test_writing_in_place_pays_from_where_it_stays_cheaper() -> None:
    def at(kilobytes: int, mapped_s: float) -> Crossing:
        return Crossing(kilobytes << 10, copied_s=1.0, mapped_s=mapped_s)

    assert break_even([at(1, 0.5), at(4, 2.0), at(16, 0.9), at(64, 0.1)]) == 16 << 10
    assert break_even([at(1, 2.0)]) is None


def test_both_ways_over_are_timed(device: Device) -> None:
    found = crossings(device, rounds=1)
    assert [2**power for power in range(10, 25, 2)] == [each.size_bytes for each in found]
    assert all(each.copied_s > 0 and each.mapped_s > 0 for each in found)


def test_the_studys_ratio_follows_from_its_figures() -> None:
    assert [4.0] == [phone.gain for phone in phones()]
