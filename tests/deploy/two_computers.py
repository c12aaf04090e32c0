"""Computers for the walk-through of deploy/README.md: a root folder and a network namespace each.

systemd cannot run there. A small `systemctl` starts what the units name, as their user and with
their variables; tests/deploy/test_units.py checks the units themselves.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKOUT = "root/farmhand"  # on either computer
PACKAGES = "python3-venv,redis-server,postgresql,sudo,systemd,iproute2,procps,ca-certificates,udev"
SYSTEMCTL = r"""#!/bin/sh
# Starts and stops what the units name.
action=$1; shift
start() {
    case $1 in
    postgresql.service) service postgresql start >/dev/null; return ;;
    farm-*) ;;
    *) return ;;
    esac
    name=${1%.service} number=
    file=/etc/systemd/system/$name.service
    case $name in *@*) number=${name#*@} file=/etc/systemd/system/${name%@*}@.service ;; esac
    mkdir -p /var/lib/farmhand/broker && chown farmhand:farmhand /var/lib/farmhand/broker
    variables=$(sed -n 's/^Environment=//p' "$file" | sed "s/%i/$number/g")
    pre=$(sed -n 's/^ExecStartPre=//p' "$file")
    [ -z "$pre" ] || (cd /var/lib/farmhand && runuser -u farmhand -- env $variables $pre) || exit 1
    command=$(sed -n 's/^ExecStart=//p' "$file")
    cd /var/lib/farmhand
    setsid runuser -u farmhand -- env $variables $command >"/var/log/$name.log" 2>&1 </dev/null &
}
case $action in
enable) shift; for unit in "$@"; do start "$unit"; done ;;
status) pgrep -u farmhand -a ;;
*) : ;;
esac
"""


def run(*command: str | Path, **options: object) -> str:
    """Run a command of this computer; fail with its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return str(done.stdout)


def make_wheelhouse(folder: Path, python: str) -> None:
    """Download what the installation needs, so that it works without a network."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [item.split(";")[0].strip() for item in project["dependencies"]]
    names += [*project["optional-dependencies"]["postgres"], "setuptools==80.9.0", "async-timeout"]
    constraints = ("--constraint", ROOT / "constraints.txt", "--only-binary", ":all:")
    run(python, "-m", "pip", "download", "--quiet", "--dest", folder, *constraints, *names)


def make_root(folder: Path, wheels: Path) -> None:
    """Make the root folder of a fresh Debian with the packages of the README and a checkout."""
    run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", folder)
    shutil.copytree(wheels, folder / "wheels")
    (folder / "etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    systemctl = folder / "usr/local/sbin/systemctl"
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)
    udevadm = folder / "usr/local/sbin/udevadm"
    udevadm.write_text("#!/bin/sh\n")
    udevadm.chmod(0o755)
    checkout = folder / CHECKOUT
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "tests")
    shutil.copytree(ROOT, checkout, symlinks=True, ignore=ignored)


class Computer:
    """A root folder in a new network namespace; everything in it ends with `stop`."""

    def __init__(self, name: str, address: str, root: Path, bridge: str, hosts: str) -> None:
        self.name = name
        self._namespace = f"farm-{name}-{os.getpid()}"
        self._root = root
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost {name}\n{hosts}")
        (root / "etc/hostname").write_text(f"{name}\n")
        run("ip", "netns", "add", self._namespace)
        peer = ("peer", "name", "eth0", "netns", self._namespace)
        outer = f"{name[:4]}{os.getpid()}"  # a namespace vanishes some time after its end
        run("ip", "link", "add", outer, "type", "veth", *peer)
        run("ip", "link", "set", outer, "master", bridge, "up")
        for words in (
            ("addr", "add", f"{address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            run("ip", "-n", self._namespace, *words)
        inside = (
            f"hostname {name}; mount -t proc proc proc; mount --rbind /dev dev; "
            "mount -t tmpfs run run; "
            "chroot . install -d -o postgres -g postgres -m 2775 /run/postgresql; "
            "exec chroot . sleep infinity"
        )
        unshare = ("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child")
        command = ("ip", "netns", "exec", self._namespace, *unshare, "sh", "-c", inside)
        self._process = subprocess.Popen(command, cwd=root)
        time.sleep(1.0)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        self._pid = children.split()[0]

    def shell(self, text: str, check: bool = True, **variables: str) -> str:
        """Run a line of the README in the checkout on this computer."""
        enter = ("nsenter", "--target", self._pid, "--all", "--root", "--wd", "--")
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        given = [f"{key}={value}" for key, value in variables.items()]
        line = f"cd /{CHECKOUT} && {text}"
        command = (*enter, "env", "-i", f"PATH={path}", "HOME=/root", *given, "sh", "-c", line)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if check:
            assert done.returncode == 0, f"{self.name}$ {text}\n{done.stdout}{done.stderr}"
        return done.stdout + ("" if check else done.stderr)

    def outside(self, text: str) -> str:
        """Run a line on the real computer, in the network of this one and with its names."""
        enter = ("ip", "netns", "exec", self._namespace, "unshare", "--mount", "sh", "-c")
        names = f"mount --bind {self._root}/etc/hosts /etc/hosts; "
        done = subprocess.run((*enter, names + text), capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def logs(self) -> str:
        """Return the end of the log of every service."""
        return self.shell("tail -n 15 /var/log/farm-*.log", check=False)

    def popen(self, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a program of the real computer in the network of this one."""
        return subprocess.Popen(("ip", "netns", "exec", self._namespace, *map(str, command)))

    def stop(self) -> None:
        """End every process of the computer, and remove its network."""
        self._process.kill()
        self._process.wait()
        subprocess.run(["ip", "netns", "del", self._namespace], check=False)
