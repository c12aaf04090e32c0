"""`farm workload`: the list fits a terminal, and a workload is shown with its cost."""

import json

import pytest
from click.testing import CliRunner

from kernels.plan_memory import PHONE_CORES, needed_with_threads
from orchestrator.commands import workload as command
from orchestrator.commands.workload_view import workload_lines
from tests.tui.pty_screen import open_farm_screen
from workloads.catalogue import CATALOGUE, bind
from workloads.protocol.faults import InvalidRequest


def run(*words: str) -> str:
    """Run a command that must succeed; return its output."""
    result = CliRunner().invoke(command.workload, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_list_on_a_terminal_has_every_workload_in_80_columns() -> None:
    with open_farm_screen("workload", "list", columns=120, lines=200) as screen:
        screen.wait("farm workload show NAME")
        lines = screen.text.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    listed = {line.split()[0] for line in lines if line.startswith("  ") and line.strip()}
    assert listed == {name for name in CATALOGUE if not name.endswith("-inference")}


def test_json_and_piped_lists_have_every_workload() -> None:
    assert list(json.loads(run("list", "--json"))) == list(CATALOGUE)
    assert [line.split("\t")[0] for line in run("list").splitlines()[1:]] == list(CATALOGUE)


@pytest.mark.parametrize("name", [name for name in CATALOGUE if "inference" not in name])
def test_a_shown_workload_has_at_most_80_columns(name: str) -> None:
    assert max(map(len, workload_lines(bind(name, {})))) <= 80


def test_a_workload_is_shown_with_its_cost() -> None:
    shown = json.loads(run("show", "resnet50", "--batch-size", "64", "--json"))
    assert (shown["parameters"]["batch_size"], shown["parameters"]["image_size"]) == (64, 224)
    assert shown["published_size"]["resnet50"]["parameters"] == 25_557_032
    assert shown["model_parameters"] == 25_557_032 - 990 * 2049
    memory = shown["memory_bytes"]
    assert memory["planned"] == sum(size for kind, size in memory.items() if kind != "planned")
    # The TX2 study measured 5.8 GB of memory for it.
    assert memory["planned"] == pytest.approx(5.8e9, rel=0.1)


def test_the_size_that_a_study_gives_is_shown_beside_what_its_code_has() -> None:
    shown = run("show", "emdl-lenet")
    assert "study's size    3.2 K parameters, on its slides" in shown
    assert "size as coded   349,980 parameters" in shown
    assert "98 M parameters, in its table II" in run("show", "resnet50")


def test_adapters_are_counted_apart_from_what_is_frozen() -> None:
    lora = json.loads(run("show", "decoder-15m-lora", "--json"))
    assert lora["trained_parameters"] * 4 == lora["memory_bytes"]["gradient"]
    assert "parameters      15,179,520, 147,456 of them trained" in run("show", "decoder-15m-lora")
    assert "parameters      15,032,064\n" in run("show", "decoder-15m")


def test_a_parameter_can_be_set() -> None:
    text = run("show", "resnet50", "--with", "image_size=64")
    assert "  image_size          64   32 to 512: pixels per side" in text
    with pytest.raises(InvalidRequest, match="'image_size' is not NAME=N"):
        run("show", "resnet50", "--with", "image_size")
    with pytest.raises(
        InvalidRequest, match="there is no workload 'resnet5'; did you mean resnet50"
    ):
        run("show", "resnet5")


def test_the_largest_batch_that_fits_is_found() -> None:
    fit = json.loads(run("fit", "resnet20", "--memory", "256MB", "--json"))
    assert fit["needed_bytes"] <= fit["budget_bytes"] == 256_000_000
    one_more = bind("resnet20", {"batch_size": fit["batch_size"] + 1})
    assert fit["threads"] == PHONE_CORES
    assert needed_with_threads(one_more, PHONE_CORES) > fit["budget_bytes"]
    text = run("fit", "resnet20", "--memory", "256MB")
    assert f"resnet20 fits into 256 MB with a batch of {fit['batch_size']}" in text
    assert run("fit", "resnet20", "--memory", "256MB", "--threads", "1").endswith("1 thread.\n")
    fit = json.loads(run("fit", "vgg16", "--memory", "1GB", "--json"))
    assert (fit["batch_size"], fit["needed_bytes"] > 10**9) == (None, True)
    text = run("fit", "vgg16", "--memory", "1GB")
    assert "vgg16 does not fit into 1.00 GB: a batch of 1 needs" in text


def test_batches_by_way_of_training_and_length() -> None:
    words = ("decoder-1m", "decoder-1m-lora", "--memory", "100MB", "--with", "text_length=64,128")
    rows = json.loads(run("fit", *words, "--json"))
    batches = {(row["workload"], row["text_length"]): row["batch_size"] for row in rows}
    assert batches["decoder-1m", 64] > batches["decoder-1m", 128] > 1
    assert batches["decoder-1m-lora", 128] > batches["decoder-1m", 128]
    assert len(run("fit", *words).splitlines()) == 5


def test_a_parameter_applies_to_the_workloads_that_have_it() -> None:
    words = ("decoder-1m", "decoder-1m-lora", "--memory", "100MB", "--with", "text_length=8")
    rows = json.loads(run("fit", *words, *("--with", "lora_rank=1,64,1"), "--json"))
    assert [row["lora_rank"] for row in rows] == [None, 1, 64]
    table = run("fit", *words, "--with", "lora_rank=64").splitlines()
    assert [line.split("\t")[2] for line in table] == ["lora_rank", "-", "64"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("sgemm", "--memory", "1GB"), "workload 'sgemm' has no parameter batch_size"),
        (("lenet", "--memory", "much"), "'much' is not an amount of memory; use for example 512MB"),
        (("lenet", "--memory", "9" * 400 + "GB"), "'9+…' is not an amount of memory"),
        (("lenet", "--memory", "1GB", "--with", "batch=1"), "has no parameter 'batch'"),
        (
            ("decoder-1m", "--memory", "1GB", "--with", "text_length=" + "9" * 30),
            "8 to 512, got 99",
        ),
        (("lenet", "--memory", "1GB", "--with", "batch_size=1"), "is what this command finds"),
        (("lenet", "--memory", "1GB", "--with", "x=" + "9" * 5000), "is not NAME=N"),
    ],
)
def test_a_bad_memory_budget_is_refused(words: tuple[str, ...], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        run("fit", *words)
