"""Steps: what tells one from another, what passes share, and what data a model learns from."""

import time
from dataclasses import dataclass, replace

import pytest

from workloads.budget import largest_batch, needed_bytes
from workloads.catalogue import CATALOGUE, bind
from workloads.data import Column, constant, images, labels, next_tokens, noise, rows, tokens
from workloads.fault import Refused
from workloads.graph import TARGET, Model, Node, Stated
from workloads.layers import (
    BatchNorm,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Linear,
    MeanSquaredError,
    Shape,
    SoftmaxCrossEntropy,
)
from workloads.models.dcgan import judging
from workloads.models.dcgan import training_step as dcgan
from workloads.models.lenet import emdl_lenet
from workloads.noun import digest_of
from workloads.training import SGD, Adam, Evaluation, Inference, Pass, Training, training
from workloads.work import Step, meaning_of

UNSTATED = Stated(0, 0, "a test")
LOSS = Node("loss", SoftmaxCrossEntropy())


def tried(*nodes: Node, shape: Shape = (8,), **data: Column) -> Model:
    return Model("tried", {"x": shape}, (*nodes, LOSS), UNSTATED, data=data)


FC = Node("fc", Linear(4))


def told_apart(one: Step, other: Step) -> bool:
    return digest_of(one.meaning) != digest_of(other.meaning)


@pytest.mark.parametrize(
    "other",
    [
        training(tried(FC), 8, SGD(0.02)),
        training(tried(FC), 8, SGD(0.01, weight_decay=1e-4)),
        training(tried(FC), 8, Adam()),
        training(tried(FC), 9, SGD(0.01)),
        training(tried(Node("fc", Linear(4, trainable=False))), 8, SGD(0.01)),
        training(tried(FC, x=noise()), 8, SGD(0.01)),
        training(tried(FC, target=labels(3)), 8, SGD(0.01)),
        Training((Pass(tried(FC), SGD(0.01)),), 8, batches=5),
        Training((Pass(tried(FC), SGD(0.01)),), 8, evaluation=Evaluation(2, 8)),
        Training((Pass(tried(FC), SGD(0.01), learns=frozenset()),), 8),
        Inference(tried(FC), 8),
    ],
    ids=lambda step: str(step)[:40],
)
def test_whatever_changes_a_step_changes_its_meaning(other: Step) -> None:
    assert told_apart(training(tried(FC), 8, SGD(0.01)), other)


def test_what_is_said_elsewhere_of_a_model_is_no_part_of_its_meaning() -> None:
    model = tried(FC)
    renamed = replace(model, name="other", stated=Stated(1, 2, "a book"))
    assert not told_apart(training(model, 8, SGD()), training(renamed, 8, SGD()))
    # To say what goes without saying changes nothing.
    said = replace(model, data={"x": rows(4), TARGET: labels(4)})
    assert not told_apart(training(model, 8, SGD()), training(said, 8, SGD()))


def test_a_new_field_with_a_default_leaves_old_meanings_alone() -> None:
    @dataclass(frozen=True)
    class Thing:
        size: int

    before = meaning_of(Thing(3))

    @dataclass(frozen=True)
    class Newer:
        size: int
        colour: str = "grey"

    Newer.__name__ = "Thing"
    assert before == meaning_of(Newer(3))
    assert before != meaning_of(Newer(3, "red"))


def test_every_case_of_the_shelf_is_told_from_every_other() -> None:
    digests = [bind(name, {}).digest for name in CATALOGUE]
    assert len(digests) == len(set(digests))


def test_a_thousand_digests_are_cheap() -> None:
    cases = [bind("mlp-4", {"batch_size": size}) for size in range(1, 1001)]
    began = time.process_time()
    assert 1000 == len({case.digest for case in cases})
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (tried(FC), {"x": rows(4), TARGET: labels(4)}),
        (
            tried(Node("flat", Flatten()), FC, shape=(1, 8, 8)),
            {"x": images(4), TARGET: labels(4)},
        ),
        (
            tried(Node("rows", Embedding(9, 4)), Node("fc", Linear(9)), shape=(5,)),
            {"x": tokens(9), TARGET: next_tokens(9)},
        ),
        (tried(FC, x=noise()), {"x": noise(), TARGET: labels(4)}),
    ],
    ids=["rows", "images", "text", "as it says"],
)
def test_data_follows_from_shape_and_loss(model: Model, found: dict[str, Column]) -> None:
    assert found == model.columns


def test_data_for_what_is_not_there_is_refused() -> None:
    with pytest.raises(Refused, match="tried has data for 'picture', which it does not have"):
        _ = tried(FC, picture=noise()).columns


def test_a_loss_of_values_needs_to_be_told_its_target() -> None:
    nodes = (FC, Node("loss", MeanSquaredError()))
    model = Model("tried", {"x": (8,)}, nodes, UNSTATED)
    assert TARGET not in model.columns
    assert constant(1.0) == replace(model, data={TARGET: constant(1.0)}).columns[TARGET]


def test_only_what_is_taught_learns() -> None:
    model = tried(
        Node("conv", Conv2d(2, 3)),
        Node("norm", BatchNorm()),
        Node("drop", Dropout(0.5)),
        Node("flat", Flatten()),
        FC,
        shape=(1, 6, 6),
    )
    taught = model.taught(frozenset({"fc"}))
    assert ["fc"] == [node.name for node in taught.nodes if taught.learned(node)]
    assert model.parameters == taught.parameters
    assert {"fc", "loss"} == taught.learning


def test_passes_that_share_parameters_count_them_once() -> None:
    work, alone = dcgan(4).work, training(judging(), 4, Adam()).work
    assert 3_576_704 + 2_765_568 == work.parameters
    assert work.parameter_bytes == 4 * 4 * work.parameters  # and gradient, and both moments
    names = [op.name for op in work.ops]
    assert len(names) == len(set(names))
    real = [name.removeprefix("real.") for name in names if name.startswith("real.")]
    assert real == [op.name for op in alone.ops if not op.name.endswith(".update")]
    assert not [name for name in names if name.startswith("fooled.judge") and "update" in name]


def test_inference_is_the_forward_pass_without_dropping_and_judging() -> None:
    forward = [
        op
        for op in training(emdl_lenet(), 4, SGD()).work.ops
        if op.name.endswith(".forward") and not op.name.startswith(("dropout", "loss"))
    ]
    work = Inference(emdl_lenet(), 4).work
    assert tuple(forward) == work.ops
    assert (False, 4, 4 * 349_980) == (work.training, work.samples_per_step, work.parameter_bytes)


@pytest.mark.parametrize("budget_mb", [80, 120, 200])
def test_a_batch_that_fits_fits_and_one_more_does_not(budget_mb: int) -> None:
    batch = largest_batch("lenet", budget_mb * 1_000_000)
    assert batch is not None
    assert needed_bytes(bind("lenet", {"batch_size": batch})) <= budget_mb * 1_000_000
    if batch < next(each.most for each in CATALOGUE["lenet"].parameters):
        assert needed_bytes(bind("lenet", {"batch_size": batch + 1})) > budget_mb * 1_000_000


def test_where_nothing_fits_there_is_no_batch() -> None:
    assert largest_batch("lenet", 1_000_000) is None
