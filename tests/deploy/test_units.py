"""The units of deploy/systemd, checked by systemd's own tools."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

SYSTEMD = Path(__file__).resolve().parents[2] / "deploy/systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
EXPOSURE_MAX = 2.5

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is missing"),
]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_has_few_rights(unit: Path) -> None:
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) < EXPOSURE_MAX, done.stdout


def test_units_are_valid(tmp_path: Path) -> None:
    for unit in UNITS:
        text = re.sub(r"(?m)^(ExecStart(?:Pre)?=)\S+", r"\1/bin/true", unit.read_text())
        name = unit.name.replace("@", "@1")
        (tmp_path / name).write_text(text.replace("User=farmhand", "User=root"))
    names = sorted(str(path) for path in tmp_path.iterdir())
    done = run("systemd-analyze", "verify", "--man=no", *names)
    own = [line for line in done.stderr.splitlines() if "farm-" in line]
    assert not own, done.stderr


def test_user_folders_and_rules_are_valid(tmp_path: Path) -> None:
    for folder in ("etc", "usr/lib/sysusers.d", "usr/lib/tmpfiles.d"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(SYSTEMD / "farmhand.sysusers.conf", tmp_path / "usr/lib/sysusers.d/farmhand.conf")
    shutil.copy(SYSTEMD / "farmhand.tmpfiles.conf", tmp_path / "usr/lib/tmpfiles.d/farmhand.conf")
    done = run("systemd-sysusers", f"--root={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "farmhand:" in (tmp_path / "etc/passwd").read_text()
    done = run("systemd-tmpfiles", "--create", f"--root={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "var/lib/farmhand/lab").stat().st_mode & 0o777 == 0o700
    rules = (SYSTEMD / "51-farmhand.rules").read_text().splitlines()
    parts = [part for line in rules if not line.startswith("#") for part in line.split(", ")]
    assert all(re.fullmatch(r'[A-Z]+(\{\w+\})?(==|!=|\+=|=)"[^"]*"', part) for part in parts)
