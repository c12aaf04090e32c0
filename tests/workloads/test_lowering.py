"""Lowering: no operation is missing, no tensor is overwritten too early, memory is not wasted."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import layers
from workloads.catalogue import CATALOGUE, bind, lower, step_of
from workloads.graph import Model, Node, PublishedSize
from workloads.layers import (
    Add,
    BatchNorm,
    Concat,
    Conv2d,
    Flatten,
    Layer,
    Linear,
    Loss,
    MaxPool,
    ReLU,
    SoftmaxCrossEntropy,
)
from workloads.lowering import PlanBody, lower_step
from workloads.lowering.layer_lowerings import LOWERINGS
from workloads.lowering.memory_planner import MemoryBlock, body_memory, pack
from workloads.lowering.plan_body import ARENAS, Tensor
from workloads.models.dcgan import dcgan_step
from workloads.models.densenet import densenet
from workloads.models.dqn import dqn
from workloads.models.lenet import emdl_lenet
from workloads.models.resnet import resnet
from workloads.models.text_models import bert, char_cnn, char_lstm, seq2seq
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
MOMENTUM = SGD(momentum=0.9)

STEPS: dict[str, Callable[[], Step]] = {
    "dcgan": lambda: dcgan_step(4),
    "densenet40": lambda: training_step(densenet(40), 4, MOMENTUM),
    "resnet50": lambda: training_step(resnet(50), 2, MOMENTUM),
    "resnet50 inference": lambda: InferenceStep(resnet(50), 2),
    "bert": lambda: training_step(bert(16), 2, Adam()),
    "bert inference": lambda: InferenceStep(bert(16), 2),
    "seq2seq": lambda: training_step(seq2seq(4), 2, Adam()),
    "char-lstm": lambda: training_step(char_lstm(), 2, Adam()),
    "char-cnn": lambda: training_step(char_cnn(), 2, Adam()),
    "dqn": lambda: training_step(dqn(), 2, Adam()),
    "evaluated": lambda: TrainingStep(
        (TrainingPass(emdl_lenet(), MOMENTUM),), 4, evaluation=EvaluationSpec(every=2, samples=16)
    ),
}


def names(body: PlanBody, arena: str) -> set[str]:
    return {tensor.name for tensor in body.tensors if tensor.arena == arena}


def test_every_layer_of_the_language_can_be_lowered() -> None:
    kinds = {
        item for item in vars(layers).values() if isinstance(item, type) and issubclass(item, Layer)
    }
    assert kinds - {Layer, Loss} == set(LOWERINGS)


def test_a_layer_without_an_operation_of_the_engine_is_rejected() -> None:
    @dataclass(frozen=True)
    class NewLayer(ReLU):
        tag: ClassVar[str] = "new_layer"

    nodes = (Node("fc", Linear(4)), Node("new", NewLayer()), LOSS)
    with pytest.raises(InvalidRequest, match="'new': the engine has no operation for new_layer"):
        lower_step(training_step(Model("tried", {"row": (8,)}, nodes, UNPUBLISHED), 2, SGD()))


def test_layers_that_the_loss_does_not_need_are_refused() -> None:
    nodes = (Node("fc", Linear(4)), Node("idle", Linear(4), ("fc",)))
    model = Model("tried", {"row": (8,)}, (*nodes, Node("loss", LOSS.layer, ("fc",))), UNPUBLISHED)
    with pytest.raises(InvalidRequest, match="tried, layer 'idle': the loss does not depend on it"):
        lower_step(training_step(model, 2, SGD()))


TRAINED = [name for name in CATALOGUE if not name.endswith("-inference")]


@pytest.mark.parametrize("name", [*TRAINED, *STEPS])
def test_every_operation_of_the_header_is_executed_and_no_other(name: str) -> None:
    step = STEPS[name]() if name in STEPS else step_of(bind(name, {}))
    body, ops = lower_step(step), step.cost.ops
    done = {op.entry for op in body.ops if op.entry >= 0}
    assert done | body.covered == set(range(len(ops)))
    assert not done & body.covered
    besides = {op.kind for op in body.ops if op.entry < 0 and op.phase != "evaluate"}
    assert besides <= {"load"}
    entries = [op.entry for op in body.ops if op.entry >= 0]
    assert entries == sorted(entries)


@pytest.mark.parametrize("name", STEPS)
def test_phases_follow_from_what_an_operation_is_for(name: str) -> None:
    step = STEPS[name]()
    for op in lower_step(step).ops:
        if op.entry >= 0:
            part = step.cost.ops[op.entry].name.rpartition(".")[2]
            if part == "update":
                assert op.phase == "update"
            else:
                assert op.phase == ("backward" if "gradient" in part else "forward")


@pytest.mark.parametrize("name", [*STEPS, "emdl-mobilenetv2", "emdl-googlenet"])
def test_no_operation_reads_bytes_that_another_tensor_has_overwritten(name: str) -> None:
    """Execute the list over a model of memory that only knows which tensor wrote each byte last."""
    body = lower_step(STEPS[name]() if name in STEPS else step_of(bind(name, {})))
    memory = Owners()
    for tensor in body.tensors:
        end = tensor.offset + tensor.bytes
        assert tensor.offset % 64 == 0
        assert end <= body.arenas[tensor.arena]
        if tensor.init.kind != "none" or tensor.arena in ("parameter", "state"):
            memory.write(tensor)
    for _ in range(2):
        for op in body.ops:
            for read in op.ins:
                if read is not None:
                    assert memory.owner(read) == {read.root.number}, f"{op.kind} {read}"
            for written in op.outs:
                if written is not None:
                    memory.write(written)
        if body.loss is not None:
            assert memory.owner(body.loss) == {body.loss.number}


class Owners:
    """Which tensor wrote each range of each arena last."""

    def __init__(self) -> None:
        self._owners: dict[str, list[tuple[int, int, int]]] = {arena: [] for arena in ARENAS}

    def write(self, tensor: Tensor) -> None:
        start, end = tensor.offset, tensor.offset + tensor.bytes
        kept = []
        for first, last, owner in self._owners[tensor.arena]:
            if last <= start or end <= first:
                kept.append((first, last, owner))
                continue
            if first < start:
                kept.append((first, start, owner))
            if end < last:
                kept.append((end, last, owner))
        self._owners[tensor.arena] = [*kept, (start, end, tensor.root.number)]

    def owner(self, tensor: Tensor) -> set[int]:
        start, end = tensor.offset, tensor.offset + tensor.bytes
        found, known = set(), 0
        for first, last, owner in self._owners[tensor.arena]:
            shared = min(last, end) - max(first, start)
            if shared > 0:
                found.add(owner)
                known += shared
        return found if known == tensor.bytes else found | {-1}


@pytest.mark.parametrize("name", [*STEPS, "emdl-mobilenetv2", "emdl-googlenet", "emdl-squeezenet"])
def test_activations_take_little_more_than_the_peak_demand(name: str) -> None:
    step = STEPS[name]() if name in STEPS else step_of(bind(name, {}))
    body = lower_step(step)
    spans: dict[int, list[int]] = {}  # operations that use a tensor, by its root
    sizes: dict[int, int] = {}
    for index, op in enumerate(body.ops):
        for tensor in op.operands:
            if tensor.arena == "activation":
                spans.setdefault(tensor.root.number, []).append(index)
                sizes[tensor.root.number] = tensor.root.bytes
    alive = [0] * len(body.ops)
    for root, times in spans.items():
        # A result in place of its input counts from the next operation: the input lives until then.
        first = times[0] + _is_in_place(body, times[0], root)
        for index in range(first, times[-1] + 1):
            alive[index] += sizes[root]
    assert body.arenas["activation"] <= 1.1 * max(alive) + 64 * len(sizes)


def _is_in_place(body: PlanBody, index: int, root: int) -> bool:
    op = body.ops[index]
    result = next(each for each in op.outs if each is not None and each.root.number == root)
    return any(each is not None and each.offset == result.offset for each in op.ins)


def test_without_reuse_only_views_share_memory() -> None:
    body = lower_step(training_step(resnet(50), 2, MOMENTUM), reuse=False)
    first: dict[tuple[str, int], Tensor] = {}
    for tensor in body.tensors:
        other = first.setdefault((tensor.arena, tensor.offset), tensor)
        assert other.root is tensor.root
    ends = sorted((each.arena, each.offset, each.offset + each.bytes) for each in first.values())
    for before, after in pairwise(ends):
        assert before[0] != after[0] or before[2] <= after[1]


@given(
    st.lists(
        st.builds(
            lambda size, first, length: MemoryBlock(size, first, first + length),
            st.integers(1, 5000),
            st.integers(0, 30),
            st.integers(0, 12),
        ),
        max_size=40,
    )
)
@settings(max_examples=100, deadline=None)
def test_blocks_in_use_at_the_same_time_do_not_overlap(blocks: list[MemoryBlock]) -> None:
    size = pack(blocks)
    for index, one in enumerate(blocks):
        assert 0 <= one.offset <= size - one.bytes
        for other in blocks[index + 1 :]:
            together = one.first <= other.last and other.first <= one.last
            apart = (
                one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset
            )
            assert apart or not together


def test_a_frozen_layer_passes_gradients_on_and_keeps_none() -> None:
    body = lower_step(training_step(emdl_lenet(), 4, MOMENTUM))
    assert "conv2.weight" in names(body, "parameter")
    assert not {name for name in names(body, "gradient") if name.startswith("conv2")}
    assert not {name for name in names(body, "state") if name.startswith("conv2")}
    learned = {
        f"{layer}.{part}" for layer in ("conv1", "fc1", "fc2") for part in ("weight", "bias")
    }
    assert names(body, "gradient") == {f"{name}.gradient" for name in learned}
    updated = [op.outs[0] for op in body.ops if op.phase == "update"]
    assert {each.name for each in updated if each is not None} == learned


def test_a_frozen_norm_still_needs_its_sums_and_no_memory_of_gradients() -> None:
    nodes = (
        Node("conv", Conv2d(4, 3)),
        Node("norm", BatchNorm(trainable=False)),
        Node("flat", Flatten()),
        LOSS,
    )
    body = lower_step(
        training_step(Model("tried", {"image": (2, 6, 6)}, nodes, UNPUBLISHED), 2, SGD())
    )
    assert names(body, "gradient") == {"conv.weight.gradient", "conv.bias.gradient"}
    (norm,) = [op for op in body.ops if op.kind == "batch_norm_gradient"]
    assert [each.arena for each in norm.outs if each is not None] == ["activation"] * 3


def test_a_norm_is_fused_with_the_next_relu_only_if_nothing_else_reads_it() -> None:
    def kinds(*tail: Node) -> list[str]:
        nodes = (Node("conv", Conv2d(4, 3)), Node("norm", BatchNorm()), *tail)
        model = Model(
            "tried", {"image": (2, 6, 6)}, (*nodes, Node("flat", Flatten()), LOSS), UNPUBLISHED
        )
        return [op.kind for op in lower_step(training_step(model, 2, SGD())).ops]

    alone = kinds(Node("relu", ReLU()))
    assert {"batch_norm_relu_forward", "batch_norm_relu_gradient"} <= set(alone)
    assert not {"relu_forward", "relu_gradient"} & set(alone)
    shared = kinds(Node("relu", ReLU()), Node("past", Add(), ("relu", "norm")))
    assert {"batch_norm_forward", "relu_forward", "relu_gradient"} <= set(shared)


def test_passes_share_parameters_and_add_their_gradients() -> None:
    body = lower_step(dcgan_step(4))
    weights = [each for each in body.tensors if each.name == "discriminator.conv1.weight"]
    assert len(weights) == 1
    moments = [
        each for each in body.tensors if each.name.startswith("discriminator.conv1.weight.update")
    ]
    assert len(moments) == 2
    sums = [op for op in body.ops if op.kind == "add" and op.entry >= 0]
    summed = {op.ins[0].name for op in sums if op.ins[0] is not None}
    assert all(name.startswith("discriminator.") for name in summed)
    updates = [op.ins[0].name for op in body.ops if op.kind == "adam" and op.ins[0] is not None]
    assert len(updates) == len(set(updates))


def test_a_column_that_two_passes_read_is_loaded_once() -> None:
    body = lower_step(dcgan_step(4))
    loads = [op for op in body.ops if op.kind == "load"]
    assert len(loads) == 4  # images, noise, and the two targets


def test_inference_has_no_dropout_and_no_loss() -> None:
    kinds = {op.kind for op in lower_step(InferenceStep(emdl_lenet(), 4)).ops}
    assert kinds == {
        "load",
        "conv_forward",
        "max_pool_forward",
        "linear_forward",
        "relu_forward",
    }
    kinds = {op.kind for op in lower_step(InferenceStep(resnet(50), 1)).ops}
    assert {"batch_norm_inference", "batch_norm_relu_inference"} <= kinds
    assert not {"batch_norm_forward", "batch_norm_relu_forward"} & kinds


def test_an_evaluation_uses_the_parameters_that_are_trained() -> None:
    body = lower_step(STEPS["evaluated"]())
    held_out = [op for op in body.ops if op.phase == "evaluate"]
    assert (held_out[0].kind, held_out[1].kind, held_out[-1].kind) == ("load", "load", "accuracy")
    assert {op.entry for op in held_out} == {-1}
    assert body.evaluate == 2
    weights = [each for each in body.tensors if each.name == "conv1.weight"]
    assert len(weights) == 1
    assert all(op.phase != "evaluate" for op in body.ops[: -len(held_out)])


def test_an_output_with_several_readers_gets_the_sum_of_their_gradients() -> None:
    nodes = (
        Node("fc", Linear(8)),
        Node("twice", Add(), ("fc", "fc")),
        Node("wide", Concat(), ("twice", "fc")),
        LOSS,
    )
    body = lower_step(training_step(Model("tried", {"row": (8,)}, nodes, UNPUBLISHED), 2, SGD()))
    (total,) = [op for op in body.ops if op.phase == "backward" and op.kind == "add"]
    assert len(total.ins) == 3


def test_an_odd_pixel_of_padding_is_after_the_image() -> None:
    nodes = (
        Node("conv", Conv2d(4, 3, stride=2, padding="same")),
        Node("pool", MaxPool(2, 1, "same")),
        Node("flat", Flatten()),
        LOSS,
    )
    body = lower_step(
        training_step(Model("tried", {"image": (2, 6, 7)}, nodes, UNPUBLISHED), 2, SGD())
    )
    conv, pool = (
        next(op for op in body.ops if op.kind == kind)
        for kind in ("conv_forward", "max_pool_forward")
    )
    assert conv.ints == (1, 3, 3, 2, 2, 0, 1)
    assert pool.ints == (2, 2, 1, 1, 0, 0)


def test_a_plan_of_hundreds_of_layers_is_made_within_a_minute() -> None:
    step = training_step(resnet(152), 16, MOMENTUM)
    started = time.process_time()
    body = lower_step(step)
    assert time.process_time() - started < 60
    assert len(body.ops) > 1000


def test_threads_are_not_part_of_a_case() -> None:
    case = bind("emdl-lenet", {})
    one, four = lower(case, 1), lower(case, 4)
    assert one != four
    assert one.replace(b'"threads": 1', b"").replace(b"threads 1\n", b"") == four.replace(
        b'"threads": 4', b""
    ).replace(b"threads 4\n", b"")


def test_memory_is_reported_by_kind() -> None:
    model = Model("tried", {"row": (16,)}, (Node("fc", Linear(4)), LOSS), UNPUBLISHED)
    memory = body_memory(lower_step(training_step(model, 8, MOMENTUM)))
    weight, bias = 4 * 16 * 4, 64  # a bias of 16 bytes takes a cache line
    assert memory.parameter == memory.gradient == memory.state == weight + bias
    row, label = 4 * 16 * 8, 64
    assert memory.input == row + label
    assert memory.dataset == 4 * (row + 4 * 8)  # a whole number of cache lines
    logits, loss = 4 * 4 * 8, 64
    assert memory.activation == 2 * logits + loss
