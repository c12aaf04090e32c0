"""Steps: their identity, what passes share, and the data that a model learns from."""

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from workloads import layers
from workloads.catalogue import CATALOGUE, bind
from workloads.data_columns import (
    DataColumn,
    constant,
    feature_rows,
    images,
    labels,
    next_tokens,
    noise,
    tokens,
)
from workloads.graph import TARGET, Model, Node, PublishedSize
from workloads.identity import Tagged, canonical
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
from workloads.lowering.layer_lowerings import LOWERINGS
from workloads.memory_budget import largest_batch, needed_bytes
from workloads.models.dcgan import dcgan_step, discriminator
from workloads.models.lenet import emdl_lenet
from workloads.protocol.base import digest_of
from workloads.protocol.faults import InvalidRequest
from workloads.step_cost import Step
from workloads.training import (
    SGD,
    Adam,
    EvaluationSpec,
    InferenceStep,
    TrainingPass,
    TrainingStep,
    training_step,
)

UNPUBLISHED = PublishedSize(0, 0, "a test")
LOSS = Node("loss", SoftmaxCrossEntropy())


def tried(*nodes: Node, shape: Shape = (8,), **data: DataColumn) -> Model:
    return Model("tried", {"x": shape}, (*nodes, LOSS), UNPUBLISHED, data=data)


FC = Node("fc", Linear(4))


def differ(one: Step, other: Step) -> bool:
    return digest_of(one.identity) != digest_of(other.identity)


@pytest.mark.parametrize(
    "other",
    [
        training_step(tried(FC), 8, SGD(0.02)),
        training_step(tried(FC), 8, SGD(0.01, weight_decay=1e-4)),
        training_step(tried(FC), 8, Adam()),
        training_step(tried(FC), 9, SGD(0.01)),
        training_step(tried(Node("fc", Linear(4, trainable=False))), 8, SGD(0.01)),
        training_step(tried(FC, x=noise()), 8, SGD(0.01)),
        training_step(tried(FC, target=labels(3)), 8, SGD(0.01)),
        TrainingStep((TrainingPass(tried(FC), SGD(0.01)),), 8, batches=5),
        TrainingStep((TrainingPass(tried(FC), SGD(0.01)),), 8, evaluation=EvaluationSpec(2, 8)),
        TrainingStep((TrainingPass(tried(FC), SGD(0.01), trainable=frozenset()),), 8),
        InferenceStep(tried(FC), 8),
    ],
    ids=lambda step: str(step)[:40],
)
def test_whatever_changes_a_step_changes_its_identity(other: Step) -> None:
    assert differ(training_step(tried(FC), 8, SGD(0.01)), other)


def test_name_and_published_size_are_not_part_of_the_identity() -> None:
    model = tried(FC)
    renamed = replace(model, name="other", published=PublishedSize(1, 2, "a book"))
    assert not differ(training_step(model, 8, SGD()), training_step(renamed, 8, SGD()))
    # Neither is whether the default data are spelled out.
    explicit = replace(model, data={"x": feature_rows(4), TARGET: labels(4)})
    assert not differ(training_step(model, 8, SGD()), training_step(explicit, 8, SGD()))


def test_neither_a_new_class_name_nor_a_new_field_with_a_default_changes_an_identity() -> None:
    @dataclass(frozen=True)
    class Original(Tagged):
        tag: ClassVar[str] = "thing"
        size: int

    @dataclass(frozen=True)
    class Renamed(Tagged):
        tag: ClassVar[str] = "thing"
        size: int
        colour: str = "grey"

    assert canonical(Renamed(3)) == canonical(Original(3))
    assert canonical(Renamed(3, "red")) != canonical(Original(3))


def test_every_kind_of_layer_and_optimizer_has_a_unique_tag() -> None:
    kinds = {item for item in vars(layers).values() if isinstance(item, type)} | {SGD, Adam}
    tags = [kind.tag for kind in kinds if "tag" in vars(kind)]
    assert len(tags) == len(LOWERINGS) + 2
    assert len(set(tags)) == len(tags)


def test_every_case_of_the_catalogue_has_its_own_digest() -> None:
    digests = [bind(name, {}).digest for name in CATALOGUE]
    assert len(digests) == len(set(digests))


def test_a_thousand_digests_are_cheap() -> None:
    cases = [bind("mlp-4", {"batch_size": size}) for size in range(1, 1001)]
    started = time.process_time()
    assert len({case.digest for case in cases}) == 1000
    assert time.process_time() - started < 60


@pytest.mark.parametrize(
    ("model", "columns"),
    [
        (tried(FC), {"x": feature_rows(4), TARGET: labels(4)}),
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
    ids=["rows", "images", "text", "explicit"],
)
def test_data_follows_from_shape_and_loss(model: Model, columns: dict[str, DataColumn]) -> None:
    assert model.columns == columns


def test_data_for_an_unknown_input_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="tried has data for 'picture', which is not an input"):
        _ = tried(FC, picture=noise()).columns


def test_a_regression_loss_has_no_default_target() -> None:
    nodes = (FC, Node("loss", MeanSquaredError()))
    model = Model("tried", {"x": (8,)}, nodes, UNPUBLISHED)
    assert TARGET not in model.columns
    assert replace(model, data={TARGET: constant(1.0)}).columns[TARGET] == constant(1.0)


def test_everything_but_the_named_nodes_is_frozen() -> None:
    model = tried(
        Node("conv", Conv2d(2, 3)),
        Node("norm", BatchNorm()),
        Node("drop", Dropout(0.5)),
        Node("flat", Flatten()),
        FC,
        shape=(1, 6, 6),
    )
    frozen = model.freeze_except(frozenset({"fc"}))
    assert [node.name for node in frozen.nodes if frozen.trainable_count(node)] == ["fc"]
    assert frozen.parameters == model.parameters
    assert frozen.gradient_nodes == {"fc", "loss"}


def test_passes_that_share_parameters_count_them_once() -> None:
    cost, alone = dcgan_step(4).cost, training_step(discriminator(), 4, Adam()).cost
    assert cost.parameters == 3_576_704 + 2_765_568
    assert cost.parameter_bytes == 4 * 4 * cost.parameters  # with gradient and both moments
    names = [op.name for op in cost.ops]
    assert len(names) == len(set(names))
    real = [name.removeprefix("real.") for name in names if name.startswith("real.")]
    assert real == [op.name for op in alone.ops if not op.name.endswith(".update")]
    assert not [
        name for name in names if name.startswith("fool.discriminator") and "update" in name
    ]


def test_inference_is_the_forward_pass_without_dropout_and_loss() -> None:
    forward = [
        op
        for op in training_step(emdl_lenet(), 4, SGD()).cost.ops
        if op.name.endswith(".forward") and not op.name.startswith(("dropout", "loss"))
    ]
    cost = InferenceStep(emdl_lenet(), 4).cost
    assert cost.ops == tuple(forward)
    assert (cost.training, cost.samples_per_step, cost.parameter_bytes) == (False, 4, 4 * 349_980)


@pytest.mark.parametrize("budget_mb", [80, 120, 200])
def test_the_largest_batch_fits_and_a_larger_one_does_not(budget_mb: int) -> None:
    batch = largest_batch("lenet", budget_mb * 1_000_000)
    assert batch is not None
    assert needed_bytes(bind("lenet", {"batch_size": batch})) <= budget_mb * 1_000_000
    if batch < next(each.max for each in CATALOGUE["lenet"].parameters):
        assert needed_bytes(bind("lenet", {"batch_size": batch + 1})) > budget_mb * 1_000_000


def test_there_is_no_batch_if_the_smallest_does_not_fit() -> None:
    assert largest_batch("lenet", 1_000_000) is None
