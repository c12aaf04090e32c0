"""Studies from the command line: on the phones of a lab, on kernels, and what is refused."""

import json
import platform
from html import unescape
from pathlib import Path

import pytest

from tests.documents import blocks, commands
from tests.farm.conftest import ROOT, Farm
from tests.farm.terminal import in_this_process, nothing_left, start
from tests.kernels.pocl import need_pocl

SHORT = "cambridge-copy-share"  # three runs a phone, and three that no virtual phone can do


def documented() -> list[list[str]]:
    """The documented commands about studies, without the launcher."""
    page = "docs/howto/reproduce-a-study.md"
    return [w[1:] for block in blocks("sh") if block.document == page for w in commands(block)]


def test_the_documented_studies_are_answered(
    farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed, shown, run on six virtual phones, and answered again from the store."""
    monkeypatch.chdir(tmp_path)
    said = {}
    for words in documented()[:4]:
        here = [str(farm.lab.root) if word == "lab" else word for word in words]
        code, out, err = in_this_process(*here)
        assert code == 0, f"{words}: {err}"
        said[words[1]] = out
    assert len(said["list"].splitlines()) - 1 == 20
    assert "EMDL'21" in said["show"]
    assert SHORT in said["run"]
    for text in (said["run"], said["answer"]):
        assert "simulated (extrapolated)" in text
        assert "0.91 (OnePlus 6)" in text, "their claim, and whose"
        assert "any phone\tunavailable\t\t\tour backend keeps the data on the GPU" in text
        assert "failed: unsupported: backend 'opencl' is not built in" in text
        assert text.count("share of moving data on the CPU\t") == 6
    page = (tmp_path / f"{SHORT}.simulated.html").read_text()
    assert "arXiv 2202.10100" in page
    assert "simulation; they are not measurements of any phone" in page


def test_what_cannot_be_asked_is_one_sentence(farm: Farm, tmp_path: Path) -> None:
    external = ROOT / "examples" / "external" / "llama-bench.yaml"
    for code, sentence, words in (
        (2, "unknown study 'emdl-heat'", ("show", "emdl-heat")),
        (2, "say one of the two", ("run", SHORT, "--virtual", "--native")),
        (2, "no place for a foreign engine", ("run", SHORT, "--virtual", "--external", external)),
        (4, "is not up: its broker does not answer", ("run", SHORT, "--lab", tmp_path / "none")),
        (6, "has never run emdl-thermal", ("answer", "emdl-thermal", "--lab", farm.lab.root)),
        (7, "emdl-thermal has no sweep for this host", ("run", "emdl-thermal", "--native")),
    ):
        left, _, err = in_this_process("study", *map(str, words))
        assert (code, True) == (left, sentence in err), err
        assert "Traceback" not in err


@pytest.mark.slow
def test_kernels_answer_on_this_computer(tmp_path: Path) -> None:
    need_pocl()
    (words,) = [each for each in documented() if each[-1] == "cambridge-gemm"]
    made = start(tmp_path, *words, "--json")
    out, err = made.communicate(timeout=600)
    assert made.returncode == 0, err
    said = json.loads(out)
    lines = {line["claim"]: line for line in said["claims"]}
    assert {line["source"] for line in lines.values() if line["value"] is not None} == {"host"}
    assert lines["naive kernel, GPU, n = 512"]["value"] > 0
    assert not any(line["calibration_replay"] for line in lines.values())
    assert "not on a phone's GPU" in unescape((tmp_path / said["page"]).read_text())


@pytest.mark.slow
def test_six_virtual_phones_replay_core_sets_and_clocks(tmp_path: Path) -> None:
    (words,) = [each for each in documented() if "--virtual" in each]
    made = start(tmp_path, *words, "--dir", "lab", "--json")
    out, err = made.communicate(timeout=600)
    assert made.returncode == 0, err
    lines = json.loads(out)["claims"]
    replayed = [line for line in lines if line["calibration_replay"]]
    assert len(replayed) >= 12
    assert {line["model"] for line in replayed} == {"Meizu 16T"}
    assert all("fitted" in line["source"] for line in replayed)
    quickest = [line["result"] for line in lines if line["claim"] == "shortest time of a job"]
    assert len(quickest) == 6
    nothing_left(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="no runner for such a host")
def test_this_host_as_a_phone_learns_day_by_day(tmp_path: Path) -> None:
    made = start(tmp_path, "study", "run", "tx2-daily", "--native", "--dir", "lab", "--json")
    out, err = made.communicate(timeout=900)
    if made.returncode == 6 and "other work" in err:
        pytest.skip("this host was too busy for a number, and that was said")
    assert made.returncode == 0, err
    gains = [line for line in json.loads(out)["claims"] if "gained" in line["claim"]]
    assert {line["source"] for line in gains} == {"host"}
    nothing_left(tmp_path)
