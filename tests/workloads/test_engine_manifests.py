"""The manifests of other engines: valid, complete, and what they read from the engines' output.

Whether the engines themselves run is in tests/farm/test_other_engines.py.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.app.external_engines import (
    ENGINES,
    check_study_manifest,
    list_engines,
)
from orchestrator.commands.start_files import write_engine
from orchestrator.sweepfile.manifest_reader import read_manifest
from workloads.external_program import Manifest
from workloads.program_output import StepGroup, parse_program_output
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.faults import BadOutput, InvalidRequest

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = Path(__file__).parent / "program_output"
TRAINING = ("executorch", "mnn", "onnxruntime")
INFERENCE = ("litert", "litert-benchmark", "llama-bench", "llama-cpp")
VALUES = {"threads": 1, "warmup": 2, "steps": 12, "seconds": 1, "max_seconds": 30}
FOUR_LOSSES = """
import engine_steps
options = engine_steps.read_options("tokens")
losses = iter([4.0, 3.0, 2.0, 1.0] * 2 + [0.5] * 4)
engine_steps.run_steps(options, lambda _: next(losses))
"""


def manifest_of(name: str) -> Manifest:
    return list_engines()[name].manifest


def run_python(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run a program of the engines' folder in this Python, which has none of the engines."""
    command = [sys.executable, "-B", *words]
    return subprocess.run(command, cwd=ENGINES, capture_output=True, text=True, check=False)


def test_every_engine_states_what_it_measures_and_has_its_files() -> None:
    engines = list_engines()
    assert set(engines) == {*TRAINING, *INFERENCE}
    assert {name for name, engine in engines.items() if engine.manifest.training} == set(TRAINING)
    for name, engine in engines.items():
        assert engine.manifest.name == name
        assert ("inference, no training" in engine.text) != engine.manifest.training
        digests = {file.name: file.sha256 for file in engine.manifest.files}
        for path in engine.shipped:
            assert digests[path.name] == digest_of_bytes(path.read_bytes()), path.name
        assert bool(engine.shipped) != bool(engine.needed)


def test_the_page_on_other_engines_has_every_manifest_and_package() -> None:
    page = (ROOT / "docs" / "howto" / "other-engines.md").read_text()
    for name, engine in list_engines().items():
        kind = "training" if engine.manifest.training else "inference"
        row = re.search(rf"(?m)^\| `{name}` \|.*\| {kind} \|.*https://.*$", page)
        assert row, f"{name} has no row with '{kind}' and a source"
        package = re.search(r"#   pip install (.+)", engine.text)
        assert bool(package) == bool(engine.shipped)
        assert package is None or package[1] in page


def test_the_printed_steps_are_what_the_manifests_read() -> None:
    words = ["--tokens", "1", "--threads", "1", "--warmup", "2", "--steps", "10"]
    done = run_python("-c", FOUR_LOSSES, *words, "--seconds", "0", "--max-seconds", "9")
    assert done.returncode == 0, done.stderr
    figures = parse_program_output(manifest_of("mnn"), VALUES, done.stdout)
    assert sum(steps.n for steps in figures.steps) == 10  # without the warm-up
    assert (figures.losses[0], figures.losses[-1]) == (2.5, 0.5)  # of whole passes
    assert figures.peak_rss_kb is not None
    assert figures.peak_rss_kb > 1000


@pytest.mark.parametrize("name", ["mnn", "litert"])
def test_a_missing_engine_is_one_sentence(name: str) -> None:
    script = list_engines()[name].shipped[-1].name
    blocked = "import sys\nfor name in ('MNN', 'ai_edge_litert'): sys.modules[name] = None\n"
    done = run_python("-c", f"{blocked}exec(open({script!r}).read())")
    assert done.returncode == 1
    sentence = r"\S+ cannot be imported by .+; install it there: pip install .+\n"
    assert re.fullmatch(sentence, done.stderr)


def test_llama_bench_in_its_documented_format() -> None:
    out = (OUTPUTS / "llama_bench.json").read_text()
    figures = parse_program_output(manifest_of("llama-bench"), VALUES, out)
    assert [steps.ns for steps in figures.steps] == [400_000_000, 402_000_000, 404_000_000]


def test_litert_benchmark_model_in_its_documented_format() -> None:
    manifest = manifest_of("litert-benchmark")
    out = (OUTPUTS / "tflite_benchmark.txt").read_text()
    assert parse_program_output(manifest, VALUES, "", out).steps == (
        StepGroup(210, 8_001_315_000, 37_850_000, 40_210_000),
    )
    # A single or equal times have no mean; the warm-up must not be taken instead.
    equal = (OUTPUTS / "litert_equal_times.txt").read_text()
    figures = parse_program_output(manifest, VALUES, equal)
    assert figures.steps == (StepGroup(1, 1_500_000_000, 1_500_000_000, 1_500_000_000),)


@pytest.mark.parametrize("name", [*TRAINING, *INFERENCE])
def test_a_changed_format_is_one_sentence(name: str) -> None:
    expected = f"no step time found in the output of {name}: its last line is 'took 5 seconds'"
    with pytest.raises(BadOutput, match=expected):
        parse_program_output(manifest_of(name), VALUES, "Ready\ntook 5 seconds\n\n")


def test_a_new_manifest_of_an_engine_runs_with_the_chosen_python(tmp_path: Path) -> None:
    engine = list_engines()["mnn"]
    written = write_engine("my-mnn", tmp_path, engine, "/opt/a {b}/python", [])
    assert [path.name for path in written] == ["my-mnn.yaml", "engine_steps.py", "mnn_train.py"]
    manifest, _ = read_manifest(written[0].read_text())
    assert manifest is not None
    assert (manifest.name, manifest.command[0]) == ("my-mnn", "/opt/a {{b}}/python")
    assert manifest.files == engine.manifest.files
    write_engine("again", tmp_path, engine, "python3", [])  # the same files may be there
    (tmp_path / "mnn_train.py").write_text("changed")
    with pytest.raises(InvalidRequest, match="mnn_train.py exists already"):
        write_engine("third", tmp_path, engine, "python3", [])


def test_a_new_manifest_of_a_built_program_has_the_digests_of_its_files(tmp_path: Path) -> None:
    engine = list_engines()["llama-bench"]
    files = [tmp_path / "bench", tmp_path / "qwen.gguf"]
    for file in files:
        file.write_text(file.name)
    with pytest.raises(InvalidRequest, match="needs llama-bench and model.gguf; pass --program"):
        write_engine("llama", tmp_path, engine, "python3", files[:1])
    (written,) = write_engine("llama", tmp_path, engine, "python3", files)
    manifest, _ = read_manifest(written.read_text())
    assert manifest is not None
    assert [file.sha256 for file in manifest.files] == [
        digest_of_bytes(name.encode()) for name in ("bench", "qwen.gguf")
    ]


def test_a_study_of_training_steps_refuses_inference_and_other_networks() -> None:
    sweep = "farm: 1\nname: x\nphones: all\nworkload: mobilenetv2\n"
    sweeps = [f"{sweep}matrix: {{batch_size: [2], image_size: [224, 96]}}\n"]
    for name in TRAINING:
        assert check_study_manifest(list_engines()[name].text, name, sweeps).training
    with pytest.raises(InvalidRequest, match="litert.yaml measures inference, and this study comp"):
        check_study_manifest(list_engines()["litert"].text, "litert.yaml", sweeps)
    fixed = list_engines()["mnn"].text.replace("image_size", "side")
    with pytest.raises(InvalidRequest, match="mnn.yaml has no parameter image_size, which this"):
        check_study_manifest(fixed, "mnn.yaml", sweeps)
    with pytest.raises(InvalidRequest, match="mnn.yaml:1:1: the key 'external' is missing"):
        check_study_manifest("name: mnn\n", "mnn.yaml", sweeps)
