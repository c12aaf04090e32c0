"""The catalogue: names, limits, threads, digests and plans."""

import json
import subprocess
import sys
import time

import pytest

from workloads import catalogue
from workloads.catalogue import (
    CATALOGUE,
    Case,
    bind,
    launch_of,
    lower,
    threads_of,
    work_of,
)
from workloads.condition import Condition
from workloads.fault import Refused
from workloads.shelf import INFERENCE, STUDIES
from workloads.workload import HOUSE, Study

EMDL = [name for name in CATALOGUE if name.startswith("emdl-")]
TRAINED = [name for name in CATALOGUE if f"{name}{INFERENCE}" in CATALOGUE]
NAMES = {
    "cambridge": "sgemm sgemm-square mlp-1 mlp-2 mlp-3 mlp-4",
    "emdl21": "emdl-alexnet emdl-cpuconf emdl-googlenet emdl-lenet emdl-mobilenetv2"
    " emdl-squeezenet",
    "tx2": "alexnet char-cnn char-lstm daily-increment dcgan densenet40 dqn inceptionv1 resnet50"
    " squeezenet vgg16 xception",
    "tx2-failed": "bert densenet100 resnet101 resnet152 seq2seq vgg19",
    "textbook": "lenet googlenet mobilenetv2 resnet20",
    "house": "noop",
}


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_workload_of_a_study_can_be_asked_for(study: Study) -> None:
    found = {name for name, workload in CATALOGUE.items() if workload.study == study}
    assert set(NAMES[study.name].split()) == found - {f"{name}{INFERENCE}" for name in TRAINED}


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_workload_says_what_it_is_and_where_its_settings_come_from(name: str) -> None:
    workload = CATALOGUE[name]
    assert 0 < len(workload.text) <= 70
    assert workload.notes or workload.study == HOUSE
    for parameter in workload.parameters:
        assert parameter.least <= parameter.default <= parameter.most
        assert not parameter.only or parameter.default in parameter.only


@pytest.mark.parametrize("name", TRAINED)
def test_inference_is_the_forward_part_of_training(name: str) -> None:
    """What trains beside another does less when it is used: half of dqn, the maker of dcgan."""
    train, infer = work_of(bind(name, {})), work_of(bind(f"{name}{INFERENCE}", {}))
    assert (True, False) == (train.training, infer.training)
    assert train.macs is not None
    assert infer.macs is not None
    assert infer.macs == train.macs // {"dqn": 2}.get(name, 1) or name == "dcgan"
    forward = [op for op in train.ops if op.name.endswith(".forward")]
    assert {op.name for op in infer.ops if op.name.endswith(".forward")} <= {
        op.name.removeprefix("made.") for op in forward
    }
    assert 2 < train.flops / infer.flops < (13 if name == "dcgan" else 10)


@pytest.mark.parametrize("name", TRAINED)
def test_the_smallest_of_a_workload_can_be_lowered(name: str) -> None:
    least = {each.name: each.least for each in CATALOGUE[name].parameters}
    assert lower(bind(name, least), 1)


def test_the_daily_increment_has_an_end() -> None:
    usual = Condition().launch
    for batch, warmup, steps in [(4, 256, 272), (16, 64, 68), (64, 16, 17)]:
        launch = launch_of(bind("daily-increment", {"batch_size": batch}), usual)
        assert (warmup, steps, 0.0) == (launch.warmup, launch.steps, launch.seconds)
    assert usual == launch_of(bind("densenet40", {}), usual)


@pytest.mark.parametrize("name", EMDL)
@pytest.mark.parametrize("cores", [1, 4, 8])
def test_emdl_models_use_four_threads_whatever_the_mask(name: str, cores: int) -> None:
    assert 4 == threads_of(bind(name, {}), cores)


def test_other_workloads_use_a_thread_a_core() -> None:
    assert [1, 2, 8] == [threads_of(bind("mlp-4", {}), cores) for cores in (1, 2, 8)]


def test_the_cpu_job_is_one_step_of_alexnet() -> None:
    job, step = bind("emdl-cpuconf", {}), bind("emdl-alexnet", {"batch_size": 16})
    assert work_of(step).ops == work_of(job).ops
    assert step.digest != job.digest


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_plan_says_what_the_work_is(name: str) -> None:
    case = bind(name, {})
    first, _, rest = lower(case, 4).partition(b"\n")
    magic, version, header_bytes = first.decode().split()
    assert ("farmhand-plan", "1") == (magic, version)
    header, body = json.loads(rest[: int(header_bytes)]), rest[int(header_bytes) :]
    assert len(body) == header["body_bytes"]
    assert f"case {case.digest}" in body.decode().splitlines()
    assert (case.digest, name) == (header["case"], header["workload"])
    work = work_of(case)
    assert work.flops == sum(op["flops"] for op in header["ops"])
    assert len({op["name"] for op in header["ops"]}) == len(work.ops)


def test_a_digest_is_that_of_its_content_and_cheap_the_second_time() -> None:
    case = bind("emdl-mobilenetv2", {"batch_size": 3})
    first = case.digest
    began = time.perf_counter()
    for _ in range(1000):
        assert first == Case(workload=case.workload, parameters=case.parameters).digest
    assert time.perf_counter() - began < 1
    catalogue._digest.cache_clear()
    catalogue._work.cache_clear()
    assert first == case.digest
    assert first != bind("emdl-mobilenetv2", {"batch_size": 4}).digest


def test_digests_of_what_has_not_changed_have_not_changed() -> None:
    """A digest joins results over the years: to change one is to leave its past behind."""
    known = {
        "sgemm": "f8d81977304d",
        "noop": "cafa07245e94",
        "mlp-4": "5b07ecaec7a8",
        "emdl-lenet": "4fcc8d2489d4",
        "emdl-alexnet": "7490017996f3",
    }
    assert known == {name: bind(name, {}).digest[:12] for name in known}


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("emdl-lenett", {}, "there is no workload 'emdl-lenett'; did you mean emdl-lenet"),
        ("thing", {}, "there is no workload 'thing'; 'farm workload list' shows them all"),
        ("daily-increment", {"batch_size": 5}, "batch_size is 5; it is one of 1, 2, 4, 8, 16"),
        ("emdl-lenet", {"batch_size": 0}, "batch_size is 0; it goes from 1 to 4096"),
        ("emdl-alexnet", {"batch_size": 513}, "batch_size is 513; it goes from 1 to 512"),
        ("emdl-alexnet", {"batch_size": True}, "batch_size is a whole number, not True"),
        ("emdl-cpuconf", {"batch_size": 1}, "has no parameter 'batch_size'; it has no parameters"),
    ],
)
def test_a_wrong_request_is_one_sentence(name: str, given: dict[str, int], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        bind(name, given)


def test_no_model_is_loaded_before_one_is_asked_for() -> None:
    """Every process of the farm knows the catalogue; few ever count a step."""
    code = "import sys, workloads.catalogue as c; c.bind('noop', {}).digest; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "workloads.catalogue" in loaded.stdout.split()
    assert "workloads.graph" not in loaded.stdout.split()
