"""The secrets of a closed lab: `farm lab init --tls`, and what `farm doctor` says about them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.app.checks.check_finding import Severity
from orchestrator.app.checks.security_checks import (
    check_certificates,
    check_secrets,
    judge_certificate,
    judge_store,
)
from orchestrator.app.lab_secrets import create_secrets
from tests.farm.farm_command import run_in_process
from workloads.lab.certificates import expires_at
from workloads.lab.settings import Lab
from workloads.protocol.faults import InvalidRequest


def test_a_new_lab_has_secrets_that_only_its_owner_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    words = (
        "lab",
        "init",
        "--tls",
        "--name",
        "centre.lab",
        "--store",
        "db.lab",
        "--lab",
        str(folder),
    )
    code, _, err = run_in_process(*words)
    assert code == 0, err
    lab = Lab.read(folder, {})
    assert lab.broker_url.startswith("rediss://farm:")
    assert "@db.lab/farm?sslmode=verify-full" in lab.store_url
    secret = (folder / "secrets" / "broker_password").read_text().strip()
    assert secret not in (folder / "lab.toml").read_text()
    assert secret not in (folder / "servers" / "broker.acl").read_text()
    assert [item.level for item in check_secrets(lab)] == [Severity.OK]
    assert {item.level for item in check_certificates(lab)} == {Severity.OK}
    for file in ("tls/ca.key", "secrets/store_password"):
        (folder / file).chmod(0o644)
    assert [item.level for item in check_secrets(lab)] == [Severity.ERROR] * 2


def test_a_second_call_replaces_nothing_but_what_is_asked_for(tmp_path: Path) -> None:
    assert len(list(create_secrets(tmp_path, ["centre.lab"]))) == 7
    kept = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert list(create_secrets(tmp_path, [])) == []
    assert [file.name for file in create_secrets(tmp_path, ["other.lab"])] == ["server.pem"]
    changed = {file.name for file, content in kept.items() if file.read_bytes() != content}
    assert changed == {"server.pem", "server.key"}
    with pytest.raises(InvalidRequest, match="pass its server names with --name"):
        list(create_secrets(tmp_path, [], renew=True))
    end = expires_at((tmp_path / "tls" / "server.pem").read_bytes())
    assert end > datetime.now(UTC) + timedelta(days=700)


def test_a_name_that_no_server_can_have_is_refused(tmp_path: Path) -> None:
    for name in ("", "bad name", "*.lab", "-x", "a..b", "[::1]", "a" * 300, "x\x1b[2J"):
        with pytest.raises(InvalidRequest, match="is not the name or the address of a server"):
            list(create_secrets(tmp_path, [name]))
    assert not list(tmp_path.iterdir()), "nothing is written"
    assert list(create_secrets(tmp_path, ["10.0.0.1", "fd00::1", "a" * 60 + ".lab"]))


def test_the_doctor_says_when_certificates_end() -> None:
    now = datetime.now(UTC)
    ends = {timedelta(-1): Severity.ERROR, timedelta(20): Severity.WARNING}
    for delta, level in {**ends, timedelta(100): Severity.OK}.items():
        assert judge_certificate("broker.cert_file", now + delta).level is level


@pytest.mark.parametrize(
    ("url", "levels"),
    [
        ("sqlite:///farm.db", []),
        ("postgresql+psycopg://farm@127.0.0.1/farm", []),
        ("postgresql+psycopg://farm@/farm?host=/run/postgresql", []),
        ("postgresql+psycopg://farm@192.0.2.7/farm", [Severity.ERROR]),
        ("postgresql+psycopg://farm@/farm?host=192.0.2.7&sslmode=disable", [Severity.ERROR]),
        ("postgresql+psycopg://farm@192.0.2.7/farm?sslmode=require", [Severity.WARNING]),
        ("postgresql+psycopg://farm@192.0.2.7/farm?sslmode=verify-full", []),
    ],
)
def test_a_database_whose_connection_is_not_verified_is_named(
    url: str, levels: list[Severity]
) -> None:
    assert [finding.level for finding in judge_store(url)] == levels
