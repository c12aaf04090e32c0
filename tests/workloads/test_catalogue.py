"""The catalogue: names, limits, threads, digests and plans."""

import json
import subprocess
import sys

import pytest

from workloads.catalogue import (
    CATALOGUE,
    Case,
    bind,
    cost_of,
    launch_for,
    lower,
    thread_count,
)
from workloads.models.own_models import OWN_MODELS
from workloads.protocol.condition import Condition
from workloads.protocol.faults import InvalidRequest
from workloads.workload import BUILT_IN, WorkloadSource
from workloads.workload_table import INFERENCE_SUFFIX, STUDIES

EMDL = [name for name in CATALOGUE if name.startswith("emdl-")]
TRAINED = [name for name in CATALOGUE if f"{name}{INFERENCE_SUFFIX}" in CATALOGUE]
NAMES = {
    "cambridge": "sgemm sgemm-square mlp-1 mlp-2 mlp-3 mlp-4",
    "emdl21": "emdl-alexnet emdl-cpuconf emdl-googlenet emdl-lenet emdl-mobilenetv2"
    " emdl-squeezenet emdl-squeezenet-textbook emdl-googlenet-textbook emdl-mobilenetv2-textbook",
    "tx2": "alexnet char-cnn char-lstm daily-increment dcgan densenet40 dqn inceptionv1 resnet50"
    " squeezenet vgg16 xception",
    "tx2-failed": "bert densenet100 resnet101 resnet152 seq2seq vgg19",
    "textbook": "lenet googlenet mobilenetv2 resnet20",
    "language": "decoder-1m decoder-1m-lora decoder-15m decoder-15m-lora",
    "own": " ".join(model.name for model in OWN_MODELS),
    "built-in": "noop",
}


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_workload_of_a_study_is_in_the_catalogue(study: WorkloadSource) -> None:
    found = {name for name, workload in CATALOGUE.items() if workload.study == study}
    found -= {f"{name}{INFERENCE_SUFFIX}" for name in TRAINED}
    assert found == set(NAMES[study.name].split())


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_workload_has_a_text_and_sources(name: str) -> None:
    workload = CATALOGUE[name]
    assert 0 < len(workload.text) <= 70
    assert workload.notes or workload.study == BUILT_IN
    for parameter in workload.parameters:
        assert parameter.min <= parameter.default <= parameter.max
        assert not parameter.choices or parameter.default in parameter.choices


@pytest.mark.parametrize("name", TRAINED)
def test_inference_is_the_forward_part_of_training(name: str) -> None:
    """Inference uses only half of dqn, and only the generator of dcgan."""
    train, infer = cost_of(bind(name, {})), cost_of(bind(f"{name}{INFERENCE_SUFFIX}", {}))
    assert (train.training, infer.training) == (True, False)
    assert train.macs is not None
    assert infer.macs is not None
    assert infer.macs == train.macs // {"dqn": 2}.get(name, 1) or name == "dcgan"
    forward = [op for op in train.ops if op.name.endswith(".forward")]
    assert {op.name for op in infer.ops if op.name.endswith(".forward")} <= {
        op.name.removeprefix("fake.") for op in forward
    }
    assert 2 < train.flops / infer.flops < (13 if name == "dcgan" else 10)


@pytest.mark.parametrize("name", TRAINED)
def test_every_workload_can_be_lowered_with_its_smallest_parameters(name: str) -> None:
    smallest = {each.name: each.min for each in CATALOGUE[name].parameters}
    assert lower(bind(name, smallest), 1)


def test_the_daily_increment_has_an_end() -> None:
    usual = Condition().launch
    for batch, warmup, steps in [(4, 256, 272), (16, 64, 68), (64, 16, 17)]:
        launch = launch_for(bind("daily-increment", {"batch_size": batch}), usual)
        assert (launch.warmup, launch.steps, launch.seconds) == (warmup, steps, 0.0)
    assert launch_for(bind("densenet40", {}), usual) == usual


@pytest.mark.parametrize("name", EMDL)
@pytest.mark.parametrize("cores", [1, 4, 8])
def test_emdl_models_use_four_threads_whatever_the_mask(name: str, cores: int) -> None:
    assert thread_count(bind(name, {}), cores) == 4


def test_other_workloads_use_one_thread_per_core() -> None:
    assert [thread_count(bind("mlp-4", {}), cores) for cores in (1, 2, 8)] == [1, 2, 8]


def test_the_cpu_job_is_one_step_of_alexnet() -> None:
    job, step = bind("emdl-cpuconf", {}), bind("emdl-alexnet", {"batch_size": 16})
    assert cost_of(job).ops == cost_of(step).ops
    assert job.digest != step.digest


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_plan_states_the_cost_of_a_step(name: str) -> None:
    case = bind(name, {})
    first, _, rest = lower(case, 4).partition(b"\n")
    magic, version, header_bytes = first.decode().split()
    assert (magic, version) == ("farmhand-plan", "1")
    header, body = json.loads(rest[: int(header_bytes)]), rest[int(header_bytes) :]
    assert header["body_bytes"] == len(body)
    assert f"case {case.digest}" in body.decode().splitlines()
    assert (header["case"], header["workload"]) == (case.digest, name)
    cost = cost_of(case)
    assert sum(op["flops"] for op in header["ops"]) == cost.flops
    assert len({op["name"] for op in header["ops"]}) == len(cost.ops)


def test_a_digest_is_that_of_its_content_and_cached() -> None:
    case = bind("emdl-mobilenetv2", {"batch_size": 3})
    first = case.digest
    assert Case(workload=case.workload, parameters=case.parameters).digest is first
    assert first != bind("emdl-mobilenetv2", {"batch_size": 4}).digest


def test_digests_do_not_change() -> None:
    """Digests join results of different years; a new digest separates them from the old ones."""
    known = {
        "sgemm": "f8d81977304d",
        "noop": "cafa07245e94",
        "mlp-4": "0369a92555d7",
        "emdl-lenet": "a576c555a0fb",
        "emdl-alexnet": "893d4b9f9d43",
    }
    assert {name: bind(name, {}).digest[:12] for name in known} == known


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("emdl-lenett", {}, "there is no workload 'emdl-lenett'; did you mean emdl-lenet"),
        ("thing", {}, "there is no workload 'thing'; see 'farm workload list'"),
        (
            "daily-increment",
            {"batch_size": 5},
            "batch_size must be one of 1, 2, 4, 8, 16, 32, 64, got 5",
        ),
        ("emdl-lenet", {"batch_size": 0}, "batch_size must be 1 to 4096, got 0"),
        ("emdl-alexnet", {"batch_size": 513}, "batch_size must be 1 to 512, got 513"),
        ("emdl-alexnet", {"batch_size": True}, "batch_size must be a whole number, got True"),
        ("emdl-cpuconf", {"batch_size": 1}, "has no parameter 'batch_size'; it has feed, input"),
    ],
)
def test_a_wrong_request_is_explained(name: str, given: dict[str, int], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        bind(name, given)


def test_no_model_is_loaded_before_it_is_needed() -> None:
    """Every process imports the catalogue; few ever need the cost of a step."""
    code = "import sys, workloads.catalogue as c; c.bind('noop', {}).digest; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "workloads.catalogue" in loaded.stdout.split()
    assert "workloads.graph" not in loaded.stdout.split()
