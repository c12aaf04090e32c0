"""Other engines, really run: their packages from the registry, through a native phone of a lab."""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.app.external_engines import list_engines
from orchestrator.store.database import Database
from orchestrator.store.results import measured_runs, run_outcomes
from orchestrator.store.sweep_queries import sweep_summaries
from orchestrator.supervisor.virtual_phones import NATIVE
from tests.farm.conftest import ROOT, Farm, run_farm, start_farm_with
from tests.farm.terminal import check_nothing_left, start
from workloads.lab.settings import Lab
from workloads.protocol.verdict import Validity

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the packages are for x86_64"),
]
CACHE = ROOT / ".cache" / "engines"
OURS = {True: "mobilenetv2", False: "mobilenetv2-inference"}
SWEEP = """\
farm: 1
name: {name}
phones: all
matrix:
  workload: [{ours}, "external:{name}.yaml"]
  batch_size: [2]
  image_size: [32]
conditions:
  cores: all1
  freq: free
  start_temp_max_c: any
  warmup_steps: 2
  steps_min: 12
  time_min: 1s
repeat: 1
"""


def find_python() -> str:
    """Return a Python of this version that the user of a native phone may execute."""
    version = f"python3.{sys.version_info.minor}"
    readable = [Path(folder) / version for folder in ("/usr/local/bin", "/usr/bin")]
    if os.geteuid() != 0:
        return sys.executable
    found = next((path for path in readable if path.exists()), None)
    if found is None:
        pytest.skip(f"no {version} in /usr/bin that an unprivileged user may execute")
    return str(found)


def install(name: str) -> Path:
    """Return a Python with the packages that a manifest names; it is kept for the next time."""
    packages = re.search(r"#   pip install (.+)", list_engines()[name].text)
    assert packages is not None
    folder, stamp = CACHE / name, CACHE / name / "installed"
    if not stamp.exists() or stamp.read_text() != packages[1]:
        subprocess.run(
            [find_python(), "-m", "venv", "--clear", "--without-pip", folder], check=True
        )
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
        words = ["install", "--quiet", "--prefer-binary", *packages[1].split()]
        done = subprocess.run([*pip, *words], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"the registry does not have {packages[1]}: {done.stderr[-200:]}")
        stamp.write_text(packages[1])
    return folder / "bin" / "python"


@pytest.fixture(scope="module", name="native")
def native_farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A lab whose phone is this computer."""
    lab = Lab.read(tmp_path_factory.mktemp("engines") / "lab", {})
    with start_farm_with(lab, NATIVE, 1.0) as farm:
        yield farm


def write_manifest(name: str, engine: str, python: Path | str, folder: Path) -> None:
    """Write a manifest as a user does."""
    words = ("workload", "new", name, "--engine", engine, "--python", str(python))
    done = run_farm(*words, "--dir", folder)
    assert done.returncode == 0, done.stderr


def submit(farm: Farm, name: str, text: str, folder: Path) -> str:
    """Add the programs in a folder to the lab, and submit a sweep; return its id when it ended."""
    (folder / "sweep.yaml").write_text(text)
    added = farm.command("workload", "add", *sorted(folder.glob("*.py")))
    assert added.returncode == 0, added.stderr
    submitted = farm.command("sweep", "submit", folder / "sweep.yaml", "--json")
    assert submitted.returncode == 0, submitted.stderr
    sweep = json.loads(submitted.stdout)["sweep"]
    run_farm("watch", sweep, "--exit-status", "--lab", farm.lab.root)
    return str(sweep)


@pytest.mark.parametrize("engine", ["mnn", "onnxruntime", "executorch", "litert", "llama-cpp"])
def test_an_engine_is_measured_beside_ours(native: Farm, engine: str, tmp_path: Path) -> None:
    write_manifest(engine, engine, install(engine), tmp_path)
    training = list_engines()[engine].manifest.training
    text = SWEEP.format(name=engine, ours=OURS[training])
    if engine == "llama-cpp":  # another network, so nothing of ours is beside it
        text = re.sub(r"\[mobilenetv2-inference, (.+)\]", r"[\1]", text)
        text = text.replace("batch_size: [2]", "tokens: [8]").replace("  image_size: [32]\n", "")
    sweep = submit(native, engine, text, tmp_path)
    faults = [outcome.fault for outcome in run_outcomes(native.db, sweep) if outcome.fault]
    assert not faults
    runs = measured_runs(native.db, sweep, include_void=True)
    run = next(run for run in runs if run.case.manifest)
    # Other work on this host may make a run suspect.
    assert run.verdict.validity is not Validity.VOID, run.verdict.reasons
    figures = {name: metric.value for name, metric in run.metrics.items()}
    assert run.metrics["step_ms"].provenance.source.value == "host"
    assert figures["step_ms"] > 0.1
    assert figures["peak_rss_mb"] > 20
    assert ("loss_last" in figures) is training
    if training:
        assert figures["loss_last"] < figures["loss_first"]
    if engine != "llama-cpp":
        sides = (f"{sweep}:workload={OURS[training]}", f"{sweep}:workload={engine}")
        compared = native.command("compare", *sides, "--json")
        assert compared.returncode == 0 or "suspect" in compared.stderr, compared.stderr


def test_an_engine_that_is_not_there_is_one_sentence(native: Farm, tmp_path: Path) -> None:
    for name, python in (("no-package", find_python()), ("no-python", "/nowhere/bin/python")):
        write_manifest(name, "mnn", python, tmp_path)
    text = SWEEP.format(name="no-python", ours='"external:no-package.yaml"')
    sweep = submit(native, "missing", text, tmp_path)
    texts = sorted(o.fault.text for o in run_outcomes(native.db, sweep) if o.fault)
    assert len(texts) == 2
    assert texts[0].startswith("no-package exited with 1; it printed: MNN cannot be imported by /")
    assert "install it there: pip install MNN==" in texts[0]
    assert texts[1].startswith("no-python or what it calls was not found; install it, or correct")


@pytest.mark.parametrize("engine", ["mnn", "onnxruntime", "executorch"])
def test_the_study_of_libraries_compares_another_engine(engine: str, tmp_path: Path) -> None:
    write_manifest("other", engine, install(engine), tmp_path)
    words = ("study", "run", "emdl-library", "--native", "--external", "other.yaml")
    process = start(tmp_path, *words, "--dir", "lab", "--json")
    out, err = process.communicate(timeout=1800)
    if process.returncode == 6 and "other work" in err:
        pytest.skip("other work on this host made every run suspect")
    assert process.returncode == 0, err
    check_nothing_left(tmp_path)
    db = Database(Lab.read(tmp_path / "lab", {}).store_url)
    (sweep,) = sweep_summaries(db)
    runs = measured_runs(db, sweep.id, include_void=True)
    batches = {run.case.parameters["batch_size"] for run in runs if run.case.manifest}
    assert batches == {1, 2, 4}
    void = [run.verdict.reasons for run in runs if run.verdict.validity is Validity.VOID]
    assert not void
    lines = {line["claim"].partition(":")[0]: line for line in json.loads(out)["claims"]}
    line = lines["another engine / MNN"]
    if line["gap"] == "no_valid_run":
        pytest.skip("other work on this host made runs suspect, so no ratio was computed")
    assert (line["source"], line["gap"]) == ("host", None)
    assert line["range"][0] > 0.2


def test_the_study_refuses_inference(tmp_path: Path) -> None:
    write_manifest("my-litert", "litert", "python3", tmp_path)
    file = tmp_path / "my-litert.yaml"
    done = run_farm("study", "run", "emdl-library", "--native", "--external", file)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "farm: my-litert.yaml measures inference, and this study compares"
    )
