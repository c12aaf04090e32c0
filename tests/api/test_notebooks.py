"""The page about notebooks: its code runs with pandas, on files, the API and the database."""

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.app.operation import Role
from tests.api.conftest import ApiLab
from tests.documents import blocks


def test_the_code_of_the_page_runs(served: ApiLab, tmp_path: Path) -> None:
    parts = [block.text for block in blocks("python") if block.setting == "notebook"]
    assert len(parts) == 3
    code = "\n".join(parts).replace("smoke", "small")  # the sweep that this lab has
    (tmp_path / "lab").symlink_to(served.lab.root)
    for words in (("--format", "csv"), ("--table", "samples", "--format", "parquet")):
        name = "small.csv" if words[0] == "--format" else "small.samples.parquet"
        written = served.run("export", "small", *words, "-o", tmp_path / name)
        assert written.exception is None, written.exception
    access = {"FARM_API": served.url, "FARM_TOKEN": served.tokens[Role.VIEWER]}
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-c", code],
        cwd=tmp_path,
        env=os.environ | access,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in ("batch_size", "fc1.backward", "median", "thermal_zone0"):
        assert text in done.stdout
