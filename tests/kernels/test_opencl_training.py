"""Training on the device: perceptrons with every feed, and networks with the engine."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from kernels.autotuner import OpenCLIdentity
from kernels.harness.batch_feeds import HARNESS_FEEDS, StepEvents
from kernels.harness.cli import kernels
from kernels.harness.device_perceptron import DevicePerceptron, make_batches, reference_steps
from kernels.harness.engine_run import engine_step
from kernels.harness.opencl_device import Device
from kernels.harness.perceptron_training import (
    TOLERANCE,
    TransferTime,
    break_even,
    ratio_with_interval,
    time_transfers,
)
from kernels.harness.published_figures import published_matmuls
from workloads.protocol.faults import InvalidRequest


@pytest.mark.parametrize("feed", HARNESS_FEEDS)
def test_a_perceptron_is_the_same_with_every_feed(device: Device, feed: str) -> None:
    widths, steps = (21, 16, 13, 5), 5  # not multiples of the vector width
    batches = make_batches(widths, batch=7, batches=3)
    net, events = DevicePerceptron(device, widths, 7), StepEvents()
    step = HARNESS_FEEDS[feed](net, batches)
    for number in range(steps):
        step(number, events)
    device.finish()
    pairs = zip(net.parameters(), reference_steps(widths, batches, steps), strict=True)
    assert [1 for seen, right in pairs if np.abs(seen - right).max() > TOLERANCE] == []
    assert (9 if feed == "copied" else 7) * steps == len(events.kernels)
    assert {"copied": 42, "preloaded": 0}.get(feed, 2) * steps == len(events.copies)


def test_a_restarted_training_gives_the_same_bits(device: Device) -> None:
    batches = make_batches((16, 16), 8, 2)
    net = DevicePerceptron(device, (16, 16), 8)
    step, learned = HARNESS_FEEDS["preloaded"](net, batches), []
    for _ in range(2):
        net.reset()
        for number in range(20):
            step(number, StepEvents())
        learned.append(net.parameters())
    assert all(np.array_equal(one, other) for one, other in zip(*learned, strict=True))


def test_training_is_reported_as_json_with_its_source(device_number: str) -> None:
    words = ["train", "--models", "mlp-1", "--rounds", "2", "--json", "--device", device_number]
    result = CliRunner().invoke(kernels, words)
    report = json.loads(result.stdout)
    assert (report["source"], [row["name"] for row in report["models"]]) == ("host", ["mlp-1"])
    assert set(HARNESS_FEEDS) == set(report["models"][0]["speedup"])
    assert "does not predict a phone's GPU" in report["note"]


def test_a_network_is_trained_by_the_engine_on_the_device(device_number: str) -> None:
    words = ["train", "--models", "lenet", "--rounds", "2", "--json", "--device", device_number]
    result = CliRunner().invoke(kernels, words)
    (network,) = json.loads(result.stdout)["networks"]
    assert (network["name"], network["passed"]) == ("lenet", True)
    assert set(network["phases_s"]) == {"load", "forward", "backward", "update"}
    assert sum(network["phases_s"].values()) == pytest.approx(min(network["turns_s"]), rel=0.05)


def test_a_device_that_the_runner_does_not_find_is_refused() -> None:
    unknown = OpenCLIdentity("Mali-G78", "OpenCL 2.1", "r38p1")
    with (
        pytest.raises(InvalidRequest, match="does not find Mali-G78 with driver r38p1"),
        engine_step("lenet", 1, 1, unknown),
    ):
        pytest.fail("a step was prepared")


def test_an_unknown_model_is_refused(device_number: str) -> None:
    result = CliRunner().invoke(kernels, ["train", "--models", "mlp-9", "--device", device_number])
    assert "'mlp-9' is not a model" in str(result.exception)


def test_a_ratio_is_within_its_interval() -> None:
    ratio, low, high = ratio_with_interval([2.0, 2.1, 1.9, 2.0], [1.0, 1.05, 0.95, 1.0])
    assert low <= ratio <= high
    assert ratio == pytest.approx(2.0)


def test_the_break_even_of_mapped_writes_is_found() -> None:
    def at(kilobytes: int, mapped_s: float) -> TransferTime:
        return TransferTime(kilobytes << 10, copied_s=1.0, mapped_s=mapped_s)

    assert break_even([at(1, 0.5), at(4, 2.0), at(16, 0.9), at(64, 0.1)]) == 16 << 10
    assert break_even([at(1, 2.0)]) is None


def test_both_ways_to_transfer_are_timed(device: Device) -> None:
    times = time_transfers(device, rounds=1)
    assert [2**power for power in range(10, 25, 2)] == [one.size_bytes for one in times]
    assert all(one.copied_s > 0 and one.mapped_s > 0 for one in times)


def test_the_ratio_of_the_study_follows_from_its_figures() -> None:
    assert [phone.ratio for phone in published_matmuls()] == [4.0]
