"""The images of deploy/Dockerfile: built with buildah in chroot isolation, and entered."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.two_computers import ROOT, make_wheelhouse, run

NEEDED = ("buildah", "mmdebstrap")
AGENT_MB_MAX = 150
NOT_ON_AGENTS = ("sqlmodel", "sqlalchemy", "alembic", "scipy", "pyopencl")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.getuid() != 0 or any(not shutil.which(name) for name in NEEDED),
        reason=f"needs root and {NEEDED}",
    ),
]


class Buildah:
    """buildah with a new storage, without a network."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.policy = folder / "policy.json"
        self.policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        make_wheelhouse(folder / "wheels", sys.executable)
        run("mmdebstrap", "--variant=minbase", "bookworm", folder / "base.tar")
        container = self("from", "scratch").strip()
        self("add", "--quiet", container, folder / "base.tar", "/")
        self("commit", "--quiet", *self._signed, container, "localhost/base:test")
        self("rm", container)

    @property
    def _signed(self) -> tuple[str, Path]:
        return ("--signature-policy", self.policy)

    def __call__(self, *words: str | Path) -> str:
        places = ("--root", self._folder / "images", "--runroot", self._folder / "run")
        return run("buildah", *places, "--storage-driver", "vfs", *words)

    def build(self, target: str) -> str:
        """Build a target; return the name of its image."""
        image = f"localhost/farmhand-{target}:test"
        # Without --layers: this storage copies the whole image for every line of the Dockerfile.
        options = ("--isolation", "chroot", "--network", "host", *self._signed)
        arguments = ("BASE=localhost/base:test", "PIP_OPTIONS=--no-index --find-links /wheels")
        given = [word for item in arguments for word in ("--build-arg", item)]
        mount = ("--volume", f"{self._folder / 'wheels'}:/wheels:ro")
        file = ("--file", ROOT / "deploy/Dockerfile")
        self("bud", *options, *given, *mount, "--target", target, "--tag", image, *file, ROOT)
        return image

    def enter(self, image: str, script: str) -> str:
        """Run a script in a new container of an image, as the user of the image."""
        container = self("from", *self._signed, image).strip()
        try:
            return self("run", "--isolation", "chroot", container, "--", "sh", "-ec", script)
        finally:
            self("rm", container)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    folder = tmp_path_factory.mktemp("images")
    yield Buildah(folder)
    subprocess.run(["rm", "-rf", folder], check=False)


def test_the_image_of_an_agent_is_small_and_has_no_database_library(buildah: Buildah) -> None:
    image = buildah.build("agent")
    modules = ", ".join(NOT_ON_AGENTS)
    script = f"""
        id --user
        du --summarize --block-size=1M /opt/farmhand | cut --fields 1
        python3 -c 'import agent.worker, agent.join_cli, importlib.util as util
print([name for name in "{modules}".split(", ") if util.find_spec(name)])'
        farm service agent --help | head -1
        farm service agent --lab /tmp/lab --broker redis://127.0.0.1:1 --host here >/tmp/log 2>&1 &
        for second in $(seq 60); do grep -q 'agent started' /tmp/log && break; sleep 1; done
        kill $! || true
        grep -o 'agent started' /tmp/log || {{ tail -3 /tmp/log; exit 1; }}
        touch /etc/x 2>/dev/null || echo refused
    """
    user, size, found, usage, started, refused = buildah.enter(image, script).splitlines()
    assert user == "10001"
    assert int(size) < AGENT_MB_MAX
    assert found == "[]"
    assert usage.startswith("Usage: farm service agent")
    assert (started, refused) == ("agent started", "refused")


def test_the_image_of_the_centre_runs_the_demo(buildah: Buildah) -> None:
    image = buildah.build("orchestrator")
    health = (
        "import urllib.request as r; "
        "print(r.urlopen('http://127.0.0.1:8401/readyz', timeout=4).status)"
    )
    script = f"""
        id --user
        cd /tmp
        farm demo --dir demo >/tmp/demo.log 2>&1 || cat /tmp/demo.log
        ls demo/report.html
        export FARM_HEALTH=127.0.0.1:8401 FARM_LAB=/tmp/lab
        python3 -c "{health}" 2>/dev/null || echo down
        farm store migrate >/dev/null
        farm service api >/tmp/log 2>&1 &
        sleep 8
        python3 -c "{health}" 2>/dev/null || echo not ready
        kill $! || true
    """
    user, report, before, after = buildah.enter(image, script).splitlines()
    assert user == "10001"
    assert report == "demo/report.html"
    assert before == "down"
    assert after == "not ready", "no broker runs, so the health check fails"
