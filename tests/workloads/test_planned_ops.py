"""Operations of a plan: what they wait for, and the memory in use while they run."""

import pytest

from workloads.catalogue import bind, cost_of, planned_ops, step_of
from workloads.lowering import step_memory


def test_an_operation_names_the_ones_whose_results_it_reads() -> None:
    ops = planned_ops("lenet", (("batch_size", 16),))
    names = list(ops)
    needs = {name: [names[number] for number in op.needs] for name, op in ops.items()}
    assert needs["conv1.forward"] == []
    assert needs["fc2.weight_gradient"] == ["tanh3.forward", "tanh4.input_gradient"]
    assert needs["conv1.update"] == ["conv1.weight_gradient", "conv1.bias_gradient"]


@pytest.mark.parametrize("workload", ["mlp-4", "resnet20", "dcgan", "char-lstm"])
def test_live_memory_never_exceeds_the_plan_and_nearly_reaches_it(workload: str) -> None:
    case = bind(workload, {"batch_size": 16})
    ops = planned_ops(workload, tuple(case.parameters.items()))
    assert list(ops) == [op.name for op in cost_of(case).ops]
    memory = step_memory(step_of(case))
    live = [op.live_bytes for op in ops.values()]
    assert 0.6 * (memory.planned - memory.dataset) < max(live) <= memory.planned - memory.dataset
    assert min(live) > memory.parameter / 2
    assert len(set(live)) > 5, "it differs between operations"
