"""Lowering: nothing is left out, nobody reads another's bytes, and memory is not wasted."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import layers
from workloads.catalogue import CATALOGUE, bind, lower, step_of
from workloads.fault import Refused
from workloads.graph import Model, Node, Stated
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
from workloads.lowering import Body, body_of
from workloads.lowering.body import ARENAS, Tensor
from workloads.lowering.layers import LAYERS
from workloads.lowering.memory import Block, memory_of_body, pack
from workloads.models.dcgan import training_step as dcgan
from workloads.models.densenet import densenet
from workloads.models.dqn import dqn
from workloads.models.lenet import emdl_lenet
from workloads.models.resnet import resnet
from workloads.models.texts import bert, char_cnn, char_lstm, seq2seq
from workloads.training import SGD, Adam, Evaluation, Inference, Pass, Training, training
from workloads.work import Step

UNSTATED = Stated(0, 0, "a test")
LOSS = Node("loss", SoftmaxCrossEntropy())
MOMENTUM = SGD(momentum=0.9)

STEPS: dict[str, Callable[[], Step]] = {
    "dcgan": lambda: dcgan(4),
    "densenet40": lambda: training(densenet(40), 4, MOMENTUM),
    "resnet50": lambda: training(resnet(50), 2, MOMENTUM),
    "resnet50 inference": lambda: Inference(resnet(50), 2),
    "bert": lambda: training(bert(16), 2, Adam()),
    "bert inference": lambda: Inference(bert(16), 2),
    "seq2seq": lambda: training(seq2seq(4), 2, Adam()),
    "char-lstm": lambda: training(char_lstm(), 2, Adam()),
    "char-cnn": lambda: training(char_cnn(), 2, Adam()),
    "dqn": lambda: training(dqn(), 2, Adam()),
    "evaluated": lambda: Training(
        (Pass(emdl_lenet(), MOMENTUM),), 4, evaluation=Evaluation(every=2, samples=16)
    ),
}


def names(body: Body, arena: str) -> set[str]:
    return {tensor.name for tensor in body.tensors if tensor.arena == arena}


def test_every_layer_of_the_language_can_be_lowered() -> None:
    language = {getattr(layers, name) for name in layers.__all__}
    kinds = {each for each in language if isinstance(each, type) and issubclass(each, Layer)}
    assert kinds - {Layer, Loss} == set(LAYERS)


def test_what_no_engine_has_is_refused_in_one_sentence() -> None:
    @dataclass(frozen=True)
    class Unheard(ReLU):
        """A layer that nobody has lowered."""

    nodes = (Node("fc", Linear(4)), Node("new", Unheard()), LOSS)
    with pytest.raises(Refused, match="layer 'new': no engine has an operation for Unheard"):
        body_of(training(Model("tried", {"row": (8,)}, nodes, UNSTATED), 2, SGD()))


def test_what_the_loss_does_not_need_is_refused() -> None:
    nodes = (Node("fc", Linear(4)), Node("idle", Linear(4), ("fc",)))
    model = Model("tried", {"row": (8,)}, (*nodes, Node("loss", LOSS.layer, ("fc",))), UNSTATED)
    with pytest.raises(Refused, match="tried, layer 'idle': the loss does not need it"):
        body_of(training(model, 2, SGD()))


TRAINED = [name for name in CATALOGUE if not name.endswith("-inference")]


@pytest.mark.parametrize("name", [*TRAINED, *STEPS])
def test_every_operation_of_the_header_is_done_and_none_besides(name: str) -> None:
    step = STEPS[name]() if name in STEPS else step_of(bind(name, {}))
    body, ops = body_of(step), step.work.ops
    done = {op.entry for op in body.ops if op.entry >= 0}
    assert set(range(len(ops))) == done | body.covered
    assert not done & body.covered
    besides = {op.kind for op in body.ops if op.entry < 0 and op.phase != "evaluate"}
    assert besides <= {"load"}
    entries = [op.entry for op in body.ops if op.entry >= 0]
    assert sorted(entries) == entries


@pytest.mark.parametrize("name", STEPS)
def test_phases_follow_from_what_an_operation_is_for(name: str) -> None:
    step = STEPS[name]()
    for op in body_of(step).ops:
        if op.entry >= 0:
            part = step.work.ops[op.entry].name.rpartition(".")[2]
            if part == "update":
                assert "update" == op.phase
            else:
                assert ("backward" if "gradient" in part else "forward") == op.phase


@pytest.mark.parametrize("name", [*STEPS, "emdl-mobilenetv2", "emdl-googlenet"])
def test_nobody_reads_bytes_that_another_has_written(name: str) -> None:
    """Execute the list over a model of memory that only knows who wrote each byte last."""
    body = body_of(STEPS[name]() if name in STEPS else step_of(bind(name, {})))
    memory = Owners()
    for tensor in body.tensors:
        end = tensor.offset + tensor.bytes
        assert 0 == tensor.offset % 64
        assert end <= body.arenas[tensor.arena]
        if tensor.init.kind != "none" or tensor.arena in ("parameter", "state"):
            memory.write(tensor)
    for _ in range(2):
        for op in body.ops:
            for read in op.ins:
                if read is not None:
                    assert memory.owner(read) == {read.root.number}, f"{op.kind} {read}"
            for made in op.outs:
                if made is not None:
                    memory.write(made)
        if body.loss is not None:
            assert memory.owner(body.loss) == {body.loss.number}


class Owners:
    """Who wrote each stretch of each arena last."""

    def __init__(self) -> None:
        self._owners: dict[str, list[tuple[int, int, int]]] = {arena: [] for arena in ARENAS}

    def write(self, tensor: Tensor) -> None:
        start, end = tensor.offset, tensor.offset + tensor.bytes
        left = []
        for first, last, owner in self._owners[tensor.arena]:
            if last <= start or end <= first:
                left.append((first, last, owner))
                continue
            if first < start:
                left.append((first, start, owner))
            if end < last:
                left.append((end, last, owner))
        self._owners[tensor.arena] = [*left, (start, end, tensor.root.number)]

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
def test_activations_take_little_more_than_what_is_needed_at_the_busiest_moment(name: str) -> None:
    step = STEPS[name]() if name in STEPS else step_of(bind(name, {}))
    body = body_of(step)
    spans: dict[int, list[int]] = {}  # by offset and root: who is in place of whom shares both
    sizes: dict[int, int] = {}
    for at, op in enumerate(body.ops):
        for tensor in op.operands:
            if tensor.arena == "activation":
                spans.setdefault(tensor.root.number, []).append(at)
                sizes[tensor.root.number] = tensor.root.bytes
    alive = [0] * len(body.ops)
    for root, times in spans.items():
        # What is made in place is counted from the moment after, as its source lives until then.
        first = times[0] if _made_apart(body, times[0], root) else times[0] + 1
        for at in range(first, times[-1] + 1):
            alive[at] += sizes[root]
    assert body.arenas["activation"] <= 1.1 * max(alive) + 64 * len(sizes)


def _made_apart(body: Body, at: int, root: int) -> bool:
    op = body.ops[at]
    made = next(each for each in op.outs if each is not None and each.root.number == root)
    return all(each is None or each.offset != made.offset for each in op.ins)


def test_without_reuse_nobody_shares_but_views() -> None:
    body = body_of(training(resnet(50), 2, MOMENTUM), reuse=False)
    places: dict[tuple[str, int], Tensor] = {}
    for tensor in body.tensors:
        other = places.setdefault((tensor.arena, tensor.offset), tensor)
        assert other.root is tensor.root
    ends = sorted((each.arena, each.offset, each.offset + each.bytes) for each in places.values())
    for before, after in pairwise(ends):
        assert before[0] != after[0] or before[2] <= after[1]


@given(
    st.lists(
        st.builds(
            lambda size, first, length: Block(size, first, first + length),
            st.integers(1, 5000),
            st.integers(0, 30),
            st.integers(0, 12),
        ),
        max_size=40,
    )
)
@settings(max_examples=100, deadline=None)
def test_blocks_that_live_together_lie_apart(blocks: list[Block]) -> None:
    size = pack(blocks)
    for at, one in enumerate(blocks):
        assert 0 <= one.offset <= size - one.bytes
        for other in blocks[at + 1 :]:
            together = one.first <= other.last and other.first <= one.last
            apart = (
                one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset
            )
            assert apart or not together


def test_a_frozen_layer_passes_gradients_on_and_keeps_none() -> None:
    body = body_of(training(emdl_lenet(), 4, MOMENTUM))
    assert "conv2.weight" in names(body, "parameter")
    assert not {name for name in names(body, "gradient") if name.startswith("conv2")}
    assert not {name for name in names(body, "state") if name.startswith("conv2")}
    learned = {
        f"{layer}.{part}" for layer in ("conv1", "fc1", "fc2") for part in ("weight", "bias")
    }
    assert {f"{name}.gradient" for name in learned} == names(body, "gradient")
    updated = [op.outs[0] for op in body.ops if op.phase == "update"]
    assert learned == {each.name for each in updated if each is not None}


def test_a_frozen_norm_still_needs_its_sums_and_no_memory_of_gradients() -> None:
    nodes = (
        Node("conv", Conv2d(4, 3)),
        Node("norm", BatchNorm(trainable=False)),
        Node("flat", Flatten()),
        LOSS,
    )
    body = body_of(training(Model("tried", {"image": (2, 6, 6)}, nodes, UNSTATED), 2, SGD()))
    assert {"conv.weight.gradient", "conv.bias.gradient"} == names(body, "gradient")
    (norm,) = [op for op in body.ops if op.kind == "batch_norm_gradient"]
    assert ["activation"] * 3 == [each.arena for each in norm.outs if each is not None]


def test_a_norm_does_the_function_behind_it_only_where_nobody_else_reads_it() -> None:
    def kinds(*tail: Node) -> list[str]:
        nodes = (Node("conv", Conv2d(4, 3)), Node("norm", BatchNorm()), *tail)
        model = Model(
            "tried", {"image": (2, 6, 6)}, (*nodes, Node("flat", Flatten()), LOSS), UNSTATED
        )
        return [op.kind for op in body_of(training(model, 2, SGD())).ops]

    alone = kinds(Node("relu", ReLU()))
    assert {"batch_norm_relu_forward", "batch_norm_relu_gradient"} <= set(alone)
    assert not {"relu_forward", "relu_gradient"} & set(alone)
    shared = kinds(Node("relu", ReLU()), Node("past", Add(), ("relu", "norm")))
    assert {"batch_norm_forward", "relu_forward", "relu_gradient"} <= set(shared)


def test_passes_share_parameters_and_add_their_gradients() -> None:
    body = body_of(dcgan(4))
    weights = [each for each in body.tensors if each.name == "judge.conv1.weight"]
    assert 1 == len(weights)
    moments = [each for each in body.tensors if each.name.startswith("judge.conv1.weight.update")]
    assert 2 == len(moments)
    sums = [op for op in body.ops if op.kind == "add" and op.entry >= 0]
    learned = {"judge.conv", "judge.norm"}
    assert learned == {op.ins[0].name[:10] for op in sums if op.ins[0] is not None}
    updates = [op.ins[0].name for op in body.ops if op.kind == "adam" and op.ins[0] is not None]
    assert len(updates) == len(set(updates))


def test_what_two_passes_read_alike_is_loaded_once() -> None:
    body = body_of(dcgan(4))
    loads = [op for op in body.ops if op.kind == "load"]
    assert 4 == len(loads)  # images, noise, and the two truths


def test_inference_drops_nothing_and_judges_nothing() -> None:
    kinds = {op.kind for op in body_of(Inference(emdl_lenet(), 4)).ops}
    assert {
        "load",
        "conv_forward",
        "max_pool_forward",
        "linear_forward",
        "relu_forward",
    } == kinds
    kinds = {op.kind for op in body_of(Inference(resnet(50), 1)).ops}
    assert {"batch_norm_inference", "batch_norm_relu_inference"} <= kinds
    assert not {"batch_norm_forward", "batch_norm_relu_forward"} & kinds


def test_an_evaluation_uses_the_parameters_that_are_trained() -> None:
    body = body_of(STEPS["evaluated"]())
    held_out = [op for op in body.ops if op.phase == "evaluate"]
    assert ("load", "load", "accuracy") == (held_out[0].kind, held_out[1].kind, held_out[-1].kind)
    assert {-1} == {op.entry for op in held_out}
    assert 2 == body.evaluate
    weights = [each for each in body.tensors if each.name == "conv1.weight"]
    assert 1 == len(weights)
    assert all(op.phase != "evaluate" for op in body.ops[: -len(held_out)])


def test_inputs_that_meet_twice_get_the_sum_of_both_gradients() -> None:
    nodes = (
        Node("fc", Linear(8)),
        Node("twice", Add(), ("fc", "fc")),
        Node("wide", Concat(), ("twice", "fc")),
        LOSS,
    )
    body = body_of(training(Model("tried", {"row": (8,)}, nodes, UNSTATED), 2, SGD()))
    (total,) = [op for op in body.ops if op.phase == "backward" and op.kind == "add"]
    assert 3 == len(total.ins)


def test_odd_padding_lies_behind() -> None:
    nodes = (
        Node("conv", Conv2d(4, 3, stride=2, padding="same")),
        Node("pool", MaxPool(2, 1, "same")),
        Node("flat", Flatten()),
        LOSS,
    )
    body = body_of(training(Model("tried", {"image": (2, 6, 7)}, nodes, UNSTATED), 2, SGD()))
    conv, pool = (
        next(op for op in body.ops if op.kind == kind)
        for kind in ("conv_forward", "max_pool_forward")
    )
    assert (1, 3, 3, 2, 2, 0, 1) == conv.ints
    assert (2, 2, 1, 1, 0, 0) == pool.ints


def test_a_plan_of_hundreds_of_layers_is_made_within_a_second() -> None:
    step = training(resnet(152), 16, MOMENTUM)
    began = time.process_time()
    body = body_of(step)
    assert time.process_time() - began < 1
    assert len(body.ops) > 1000


def test_threads_are_no_part_of_a_case() -> None:
    case = bind("emdl-lenet", {})
    one, four = lower(case, 1), lower(case, 4)
    assert one != four
    assert one.replace(b'"threads": 1', b"").replace(b"threads 1\n", b"") == four.replace(
        b'"threads": 4', b""
    ).replace(b"threads 4\n", b"")


def test_memory_is_told_by_kind() -> None:
    model = Model("tried", {"row": (16,)}, (Node("fc", Linear(4)), LOSS), UNSTATED)
    memory = memory_of_body(body_of(training(model, 8, MOMENTUM)))
    weight, bias = 4 * 16 * 4, 64  # a bias of 16 bytes takes a line
    assert weight + bias == memory.parameter == memory.gradient == memory.state
    row, label = 4 * 16 * 8, 64
    assert row + label == memory.input
    assert 4 * (row + 4 * 8) == memory.dataset  # whole lines, as it happens
    logits, loss = 4 * 4 * 8, 64
    assert 2 * logits + loss == memory.activation
