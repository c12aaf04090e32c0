"""`farm study`: on the phones of a lab, on this computer, and refused requests."""

import json
import platform
import threading
from html import unescape
from pathlib import Path

import pytest

from orchestrator.app.control_phones import quarantine_phone
from orchestrator.app.control_sweeps import list_sweeps
from tests.documents import blocks, commands
from tests.farm.conftest import ROOT, Farm, wait_for
from tests.farm.farm_command import run_in_process
from tests.farm.terminal import check_nothing_left, start
from tests.kernels.pocl import need_pocl

SHORT = "cambridge-copy-share"  # three runs per phone on the CPU, and twelve on the GPU


def documented_commands() -> list[list[str]]:
    """Return the documented commands about studies, without the launcher."""
    page = "docs/howto/reproduce-a-study.md"
    return [w[1:] for block in blocks("sh") if block.document == page for w in commands(block)]


@pytest.mark.slow
def test_the_documented_study_commands_work(
    farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = {}
    for words in documented_commands()[:4]:
        replaced = [str(farm.lab.root) if word == "lab" else word for word in words]
        code, out, err = run_in_process(*replaced)
        assert code == 0, f"{words}: {err}"
        outputs[words[1]] = out
    assert len(outputs["list"].splitlines()) - 1 == 26
    assert "EMDL'21" in outputs["show"]
    assert SHORT in outputs["run"]
    for text in (outputs["run"], outputs["report"]):
        assert "simulated (extrapolated, error unknown)" in text
        assert "0.91 (OnePlus 6, " in text, "the claim and its phones are missing"
        assert text.count("step time, copied / preloaded\t") == 6
        assert text.count("share of moving data on the CPU\t") == 6
    page = (tmp_path / f"{SHORT}.simulated.html").read_text()
    assert "arXiv 2202.10100" in page
    assert "simulation; they are not measurements of any phone" in page


def test_impossible_requests_are_refused(farm: Farm, tmp_path: Path) -> None:
    external = ROOT / "examples" / "external" / "llama-bench.yaml"
    for code, text, words in (
        (2, "unknown study 'emdl-heat'", ("show", "emdl-heat")),
        (2, "--virtual and --native cannot be combined", ("run", SHORT, "--virtual", "--native")),
        (2, "does not compare engines", ("run", SHORT, "--virtual", "--external", external)),
        (4, "is not up: its broker does not answer", ("run", SHORT, "--lab", tmp_path / "none")),
        (6, "has not run emdl-thermal", ("report", "emdl-thermal", "--lab", farm.lab.root)),
        (
            *(7, "emdl-model-affinity cannot run on this computer"),
            ("run", "emdl-model-affinity", "--native"),
        ),
    ):
        exit_code, _, err = run_in_process("study", *map(str, words))
        assert (exit_code, text in err) == (code, True), err
        assert "Traceback" not in err


@pytest.mark.slow
def test_a_kernel_study_runs_on_this_computer(tmp_path: Path) -> None:
    need_pocl()
    process = start(tmp_path, "study", "run", "emdl-cpu-vs-gpu", "--native", "--json")
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    document = json.loads(out)
    lines = {line["claim"]: line for line in document["claims"]}
    assert {line["source"] for line in lines.values() if line["value"] is not None} == {"host"}
    assert lines["step time on the GPU / CPU"]["value"] > 0
    assert all(line["outcome"] != "calibration_replay" for line in lines.values())
    assert "this device is not one" in unescape((tmp_path / document["page"]).read_text())


@pytest.mark.slow
def test_a_study_of_core_sets_and_clocks_runs_on_virtual_phones(tmp_path: Path) -> None:
    (words,) = [words for words in documented_commands() if "--virtual" in words]
    process = start(tmp_path, *words, "--dir", "lab", "--json")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    lines = json.loads(out)["claims"]
    replayed = [line for line in lines if line["outcome"] == "calibration_replay"]
    assert len(replayed) >= 12
    assert {line["model"] for line in replayed} == {"Meizu 16T"}
    assert all("fitted" in line["source"] for line in replayed)
    shortest = [line["result"] for line in lines if line["claim"] == "shortest time of a job"]
    assert len(shortest) == 6
    check_nothing_left(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native runner is for x86_64")
def test_a_study_of_daily_training_runs_on_this_host(tmp_path: Path) -> None:
    process = start(tmp_path, "study", "run", "tx2-daily", "--native", "--dir", "lab", "--json")
    out, err = process.communicate(timeout=3600)
    if process.returncode == 6 and "other work" in err:
        pytest.skip("other work on this host made every run suspect")
    assert process.returncode == 0, err
    gains = [line for line in json.loads(out)["claims"] if "gained" in line["claim"]]
    assert {line["source"] for line in gains} == {"host"}
    check_nothing_left(tmp_path)


@pytest.mark.slow
def test_a_study_ends_when_its_last_phones_are_quarantined(
    own_farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def quarantine() -> None:
        wait_for(lambda: list_sweeps(own_farm.connection), "the study is submitted")
        for phone in own_farm.phones():
            quarantine_phone(own_farm.connection, phone.serial, "test")

    thread = threading.Thread(target=quarantine)
    thread.start()
    words = ("study", "run", SHORT, "--json", "--lab", str(own_farm.lab.root))
    code, _, err = run_in_process(*words)
    thread.join()
    assert "quarantined with runs left; release them with 'farm phone release'" in err
    assert code in (5, 6), err  # 6: no phone had finished what a claim needs
