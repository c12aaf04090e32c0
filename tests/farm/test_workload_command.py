"""`farm workload`: the shelf fits a terminal, and a card says what a case costs."""

import json

import pytest
from click.testing import CliRunner

from orchestrator.commands import workload as command
from orchestrator.commands.workload_view import workload_lines
from workloads.catalogue import CATALOGUE, bind
from workloads.memory_budget import needed_bytes
from workloads.protocol.faults import InvalidRequest


def ran(*words: str) -> str:
    result = CliRunner().invoke(command.workload, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_shelf_names_every_workload_and_fits_a_terminal() -> None:
    lines = list(command._shelf())
    assert max(map(len, lines)) <= 80
    named = {line.split()[0] for line in lines if line.startswith("  ")}
    assert {name for name in CATALOGUE if not name.endswith("-inference")} == named


def test_programs_get_every_workload() -> None:
    assert list(json.loads(ran("list", "--json"))) == list(CATALOGUE)
    assert [line.split("\t")[0] for line in ran("list").splitlines()[1:]] == list(CATALOGUE)


@pytest.mark.parametrize("name", [name for name in CATALOGUE if "inference" not in name])
def test_a_card_fits_a_terminal(name: str) -> None:
    assert max(map(len, workload_lines(bind(name, {})))) <= 80


def test_a_card_says_what_a_case_costs() -> None:
    card = json.loads(ran("show", "resnet50", "--batch-size", "64", "--json"))
    assert (card["parameters"]["batch_size"], card["parameters"]["image_size"]) == (64, 224)
    assert card["textbook"]["resnet50"]["parameters"] == 25_557_032
    assert card["model_parameters"] == 25_557_032 - 990 * 2049
    memory = card["memory_bytes"]
    assert memory["planned"] == sum(size for kind, size in memory.items() if kind != "planned")
    # The TX2 study read 5.8 GB of memory for it.
    assert pytest.approx(memory["planned"], rel=0.1) == 5.8e9


def test_a_parameter_can_be_chosen() -> None:
    assert "  image_size          64   32 to 512: pixels per side" in ran(
        "show", "resnet50", "--with", "image_size=64"
    )
    with pytest.raises(InvalidRequest, match="'image_size' chooses nothing; write NAME=N"):
        ran("show", "resnet50", "--with", "image_size")
    with pytest.raises(
        InvalidRequest, match="there is no workload 'resnet5'; did you mean resnet50"
    ):
        ran("show", "resnet5")


def test_the_largest_batch_that_fits_is_found() -> None:
    found = json.loads(ran("fit", "resnet20", "--memory", "256MB", "--json"))
    assert found["needed_bytes"] <= found["budget_bytes"] == 256_000_000
    one_more = bind("resnet20", {"batch_size": found["batch_size"] + 1})
    assert needed_bytes(one_more) > found["budget_bytes"]
    assert "resnet20 fits into 256 MB with a batch of" in ran(
        "fit", "resnet20", "--memory", "256MB"
    )
    assert "vgg16 does not fit into 1.00 GB: a batch of 1 takes" in ran(
        "fit", "vgg16", "--memory", "1GB"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("sgemm", "--memory", "1GB"), "workload 'sgemm' has no parameter batch_size"),
        (("lenet", "--memory", "much"), "'much' is not an amount of memory; use for example 512MB"),
        (("lenet", "--memory", "1GB", "--with", "batch=1"), "has no parameter 'batch'"),
    ],
)
def test_a_budget_that_makes_no_sense_is_one_sentence(
    words: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        ran("fit", *words)
