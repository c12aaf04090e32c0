"""A sweep's id depends on what it measures, and its cells are exactly those of its file."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.sweepfile.sweep_file import Sweep, read_sweep
from workloads.protocol.condition import Condition
from workloads.protocol.file_keys import fields_of

GOOD = "farm: 1\nname: demo\nworkload: mlp-4\nphones: all\n"

contents = st.fixed_dictionaries(
    {
        "farm": st.just(1),
        "name": st.from_regex(r"[a-z][a-z0-9-]{2,8}", fullmatch=True).filter(
            lambda name: name not in {"yes", "off", "true", "null", "false"}
        ),
        "workload": st.sampled_from(["sgemm", {"use": "sgemm", "with": {"k": 64}}]),
        "phones": st.sampled_from(["all", ["pixel*", "SM8?50"], ["0123456789"]]),
    },
    optional={
        "matrix": st.fixed_dictionaries(
            {},
            optional={
                "m": st.lists(st.integers(1, 99), min_size=1, max_size=4, unique=True),
                "n": st.lists(st.integers(1, 99), min_size=1, max_size=4, unique=True),
                "cores": st.lists(
                    st.sampled_from(["big2", "mask:f0", "all8"]), min_size=1, unique=True
                ),
            },
        ),
        "conditions": st.fixed_dictionaries(
            {},
            optional={
                "freq": st.sampled_from(["high", "free", 0.8]),
                "cool_wait_max": st.sampled_from(["20m", "90s"]),
                "battery_min_pct": st.integers(0, 100),
            },
        ),
        "repeat": st.integers(1, 100),
        "seed": st.integers(0, 2**31 - 1),
    },
)


def shuffle(content: Any, rng: random.Random) -> Any:
    """Shuffle the keys of a content, and the lists whose order has no meaning."""
    if isinstance(content, dict):
        keys = rng.sample(list(content), len(content))
        return {key: shuffle(content[key], rng) for key in keys}
    if isinstance(content, list):
        return rng.sample(content, len(content))
    return content


def write_yaml(content: Any, rng: random.Random) -> str:
    """Write YAML in a random style, with comments and empty lines."""
    text = yaml.safe_dump(
        content,
        sort_keys=False,
        default_flow_style=rng.choice([None, False]),
        indent=rng.choice([2, 3, 5]),
        width=1000,
    )
    lines = []
    for line in text.splitlines():
        if rng.random() < 0.3:
            lines.append(rng.choice(["", "# a word", "   # another"]))
        lines.append(line + rng.choice(["", "   # why"]))
    return "\n".join(lines)


@settings(deadline=None)
@given(content=contents, seed=st.integers(0, 2**32))
def test_comments_order_and_formatting_do_not_change_a_sweep(content: Any, seed: int) -> None:
    rng = random.Random(seed)
    plain = read_sweep(yaml.safe_dump(content))
    assert read_sweep(write_yaml(shuffle(content, rng), rng)) == plain


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # a missing key equals its default
        ("", "repeat: 5"),
        ("", "conditions: {cores: big4, freq: high, protocol: cold}"),
        ("", "matrix: {batch_size: [32]}"),
        # an axis with a single value is a condition
        ("conditions: {cores: big2}", "matrix: {cores: [big2]}"),
        # durations and fractions have several spellings
        ("conditions: {cool_wait_max: 20m}", "conditions: {cool_wait_max: 1200s}"),
        ("conditions: {freq: 0.8}", "conditions: {freq: '0.80'}"),
        ("conditions: {too_large: refuse}", ""),
    ],
)
def test_equivalent_files_have_one_id(one: str, other: str) -> None:
    assert read_sweep(GOOD + one).id == read_sweep(GOOD + other).id


@pytest.mark.parametrize(
    "change",
    [
        GOOD.replace("demo", "demo2"),
        GOOD.replace("mlp-4", "sgemm"),
        GOOD.replace("all", "[pixel*]"),
        GOOD + "repeat: 4",
        GOOD + "seed: 1",
        GOOD + "conditions: {cores: big2}",
        GOOD + "conditions: {start_temp_max_c: 33}",
        GOOD + "conditions: {start_temp_max_c: any}",
        GOOD + "conditions: {time_min: 2s}",
        GOOD + "conditions: {too_large: try}",
        GOOD + "matrix: {batch_size: [32, 64]}",
    ],
)
def test_a_different_meaning_has_a_different_id(change: str) -> None:
    assert read_sweep(change).id != read_sweep(GOOD).id


def test_an_id_is_a_prefix_and_eight_digits() -> None:
    sweep = read_sweep(GOOD)
    assert sweep.id == f"sw-{sweep.digest[:8]}"
    assert len(sweep.digest) == 64


def test_an_explicit_seed_equal_to_the_derived_one_changes_nothing() -> None:
    sweep = read_sweep(GOOD)
    assert read_sweep(GOOD + f"seed: {sweep.seed}") == sweep


def cells_of(sweep: Sweep) -> set[tuple[str, str]]:
    """Return the labels of the cells of a sweep."""
    return {(cell.case.label, cell.condition.label) for cell in sweep.cells}


def test_the_cells_are_the_product_of_the_axes() -> None:
    text = GOOD + "matrix: {batch_size: [32, 256], protocol: [cold, endurance]}\nrepeat: 2"
    sweep = read_sweep(text)
    expected = {
        (f"mlp-4 batch_size={size}", f"{protocol} big4 high")
        for size in (32, 256)
        for protocol in ("cold", "endurance")
    }
    assert cells_of(sweep) == expected
    assert sweep.runs_per_phone == 8


def test_a_workload_ignores_axes_that_it_does_not_have() -> None:
    text = GOOD.replace("workload: mlp-4\n", "")
    sweep = read_sweep(text + "matrix: {workload: [mlp-4, sgemm, noop], batch_size: [32, 64]}")
    expected = ["mlp-4 batch_size=32", "mlp-4 batch_size=64", "noop", "sgemm k=512 m=512 n=512"]
    assert [case.label for case in sweep.cases] == expected


def test_fixed_parameters_and_conditions_apply_to_every_cell() -> None:
    text = GOOD.replace("mlp-4", "{use: sgemm, with: {k: 64}}")
    sweep = read_sweep(text + "matrix: {n: [8]}\nconditions: {cool_wait_max: 20m, freq: 0.8}")
    expected = Condition(cool_wait_max_s=1200, freq="0.8")
    assert sweep.cases[0].parameters == {"m": 512, "n": 8, "k": 64}
    assert sweep.conditions[0] == expected


def test_every_field_of_a_condition_can_be_written_in_a_file() -> None:
    assert all(kind.written.is_key for kind in fields_of(Condition).values())


def test_a_condition_can_set_start_temperature_and_length() -> None:
    keys_ = "{start_temp_max_c: any, warmup_steps: 3, steps_min: 500, time_min: 2s, too_large: try}"
    (condition,) = read_sweep(GOOD + f"conditions: {keys_}").conditions
    assert (condition.start_temp_max_c, condition.too_large) == (None, "try")
    launch = condition.launch
    assert (launch.warmup, launch.steps, launch.seconds, launch.max_seconds) == (3, 500, 2.0, 600.0)
    longer = read_sweep(GOOD + "conditions: {time_min: 20m}").conditions[0].launch
    assert (longer.seconds, longer.max_seconds) == (1200.0, 1200.0)


@pytest.mark.parametrize("name", ["demo.yaml", "smoke.yaml"])
def test_the_examples_are_valid_sweeps(name: str) -> None:
    examples = Path(__file__).parents[2] / "examples"
    assert read_sweep((examples / name).read_text()).name == name.removesuffix(".yaml")


def test_another_backend_is_another_case_and_cpu_is_the_default() -> None:
    plain = read_sweep(GOOD)
    cpu = read_sweep(GOOD.replace("mlp-4", "{use: mlp-4, backend: cpu}"))
    gpu = read_sweep(GOOD.replace("mlp-4", "{use: mlp-4, backend: opencl}"))
    (first,), (same,), (other,) = plain.cases, cpu.cases, gpu.cases
    assert first.digest == same.digest != other.digest
    assert (other.label, other.backend) == (f"{first.label} opencl", "opencl")


def test_backends_are_an_axis_and_rules_can_name_them() -> None:
    matrix = "matrix: {backend: [cpu, opencl], batch_size: [8, 16]}\n"
    rule = "exclude: [{backend: opencl, batch_size: 16, why: too large}]\n"
    sweep = read_sweep(GOOD + matrix + rule)
    kinds = {(case.backend, case.parameters["batch_size"]) for case in sweep.cases}
    assert kinds == {("cpu", 8), ("cpu", 16), ("opencl", 8)}
    once = read_sweep(GOOD.replace("mlp-4", "{use: mlp-4, backend: opencl}"))
    assert once.cases == read_sweep(GOOD + "matrix: {backend: [opencl]}\n").cases
