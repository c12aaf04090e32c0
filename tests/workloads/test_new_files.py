"""`farm workload new`: what they write works at once."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.app.external_engines import changed_files
from orchestrator.commands.start_files import check_name, write_manifest, write_model
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.farm.conftest import ROOT
from workloads.protocol.faults import InvalidRequest

USE = """
from workloads.catalogue import CATALOGUE, bind, cost_of, lower
case = bind("my-net", {"batch_size": 4})
assert cost_of(case).training and cost_of(case).parameters > 10_000
assert lower(case, threads=1).startswith(b"farm")
assert not cost_of(bind("my-net-inference", {})).training
print(CATALOGUE["my-net"].text)
"""


def test_a_new_model_is_one_file_and_one_line_and_can_be_lowered(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "workloads", tmp_path / "workloads")
    models = tmp_path / "workloads" / "models"
    before = (models / "own_models.py").read_text().splitlines()
    assert write_model("my-net", models) == models / "my_net.py"
    after = (models / "own_models.py").read_text().splitlines()
    assert [line for line in after if line not in before] == [
        '    OwnModel("my-net", "what it does, in one line"),'
    ]
    command = [sys.executable, "-c", USE]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "what it does, in one line\n"), done.stderr
    with pytest.raises(InvalidRequest, match="my_net.py exists already"):
        write_model("my-net", models)
    text = (models / "my_net.py").read_text()
    (models / "my_net.py").write_text(text.replace("side=32", 'side=given["size"]'))
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    line = 1 + text[: text.index("side=32")].count("\n")
    mistake = f"workloads/models/my_net.py, line {line}: KeyError: 'size'; correct the file"
    assert done.stderr.splitlines()[-1].endswith(f"InvalidRequest: {mistake}")


@pytest.mark.parametrize("name", ["", "My Net", "../x", "1net", "x" * 41, "a\nb"])
def test_a_name_that_cannot_be_a_file_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a name"):
        check_name(name)


def test_a_new_manifest_is_valid_and_its_program_prints_what_it_says(tmp_path: Path) -> None:
    manifest, program = write_manifest("my-engine", tmp_path, None)
    text = 'farm: 1\nname: x\nphones: all\nworkload: "external:my-engine.yaml"\n'
    (case,) = read_sweep(text, lambda name: (tmp_path / name).read_text()).cases
    assert case.manifest is not None
    assert case.manifest.training
    output = subprocess.check_output(["sh", program, "8", "2", "3", "0"], text=True)
    assert output.splitlines()[0] == "step ms 24.0 loss 818.5"
    assert len(output.splitlines()) == 3
    with pytest.raises(InvalidRequest, match="exists already"):
        write_manifest("my-engine", tmp_path, program)
    assert changed_files(manifest.read_text(), tmp_path) == {}
    program.write_text("#!/system/bin/sh\n")
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    assert changed_files(manifest.read_text(), tmp_path) == {"my-engine.sh": digest}


def test_a_built_program_is_started_itself_and_a_script_by_its_interpreter(tmp_path: Path) -> None:
    for name, content, start in (
        ("engine", b"\x7fELF", '["{engine}", '),
        ("tool", b"#!/system/bin/sh\n", '[sh, "{tool}", '),
        ("bench", b"#!/usr/bin/env python3\n", '["/opt/python", "{bench}", '),
        ("train.py", b"import time\n", '["/opt/python", "{train.py}", '),
    ):
        program = tmp_path / name
        program.write_bytes(content)
        (manifest,) = write_manifest(f"my-{program.stem}", tmp_path, program, "/opt/python")
        assert f"\ncommand: {start}" in manifest.read_text()
    (tmp_path / "my tool").write_bytes(b"x")
    with pytest.raises(InvalidRequest, match="'my tool' is not a plain file name"):
        write_manifest("spaced", tmp_path, tmp_path / "my tool")
    assert not (tmp_path / "spaced.yaml").exists()
