# Shared by install-centre.sh and install-host.sh; it is not run by itself.

here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
root=

die() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

need() {
    for program in "$@"; do
        command -v "$program" >/dev/null ||
            die "$program is missing; install the packages that deploy/README.md names"
    done
}

# begin ARGUMENTS: read --root; create the user and the folders.
begin() {
    while [ $# -gt 0 ]; do
        case "$1" in
        --root) root=${2:?--root needs a folder} && shift ;;
        *) die "unknown argument $1" ;;
        esac
        shift
    done
    [ "$(id -u)" = 0 ] || [ -n "$root" ] || die "run it as root"
    need python3
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python 3.11 or newer is needed"
    venv=$root/opt/farmhand/venv
    put_file deploy/systemd/farmhand.sysusers.conf /usr/lib/sysusers.d farmhand.conf
    put_file deploy/systemd/farmhand.tmpfiles.conf /usr/lib/tmpfiles.d farmhand.conf
    mkdir -p "$root/etc/farmhand" "$root/usr/local/bin"
    if [ -z "$root" ]; then
        systemd-sysusers farmhand.conf
        systemd-tmpfiles --create farmhand.conf
    else
        mkdir -p "$root/var/lib/farmhand/lab"
    fi
}

# put_file SOURCE FOLDER [NAME]
put_file() {
    mkdir -p "$root$2"
    install -m 644 "$here/$1" "$root$2/${3:-$(basename "$1")}"
}

put_service() {
    put_file "deploy/systemd/$1" /etc/systemd/system
    [ -n "$root" ] || systemctl daemon-reload
}

# make_environment [PIP-ARGUMENTS]: create the environment, with what the arguments name.
make_environment() {
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" ||
        die "this Python cannot create environments; install python3-venv"
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >/dev/null
    [ $# -eq 0 ] || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
        --constraint "$here/constraints.txt" "$@"
}

# install_farmhand PIP-ARGUMENTS: install the checkout, and the command farm, which uses the lab.
install_farmhand() {
    extra='[postgres]'
    case " $* " in *" --no-deps "*) extra= ;; esac
    copy=$(mktemp -d)
    cp -r "$here/pyproject.toml" "$here/MANIFEST.in" "$here/README.md" "$here/constraints.txt" \
        "$here/farm" "$here/CHANGELOG.md" "$here/agent" "$here/kernels" "$here/orchestrator" \
        "$here/workloads" "$here/examples" "$copy"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
        --force-reinstall "$@" "$copy$extra"
    rm -rf "$copy"
    # The services need no installer; the next call of this script gets it back.
    "$venv/bin/python" -m pip uninstall --quiet --yes setuptools pip 2>/dev/null
    cat >"$root/usr/local/bin/farm" <<'END'
#!/bin/sh
# farm - the command, for the lab of this computer; it runs as the user of the services.
export FARM_LAB="${FARM_LAB:-/var/lib/farmhand/lab}"
farm=/opt/farmhand/venv/bin/farm
if [ -n "${FARM_API-}" ] || [ "$(id -un)" = farmhand ]; then exec "$farm" "$@"; fi
if [ "$(id -u)" = 0 ]; then exec runuser -u farmhand -- "$farm" "$@"; fi
echo "farm: the lab belongs to the user farmhand; call 'sudo farm', or set FARM_API and FARM_TOKEN" >&2
exit 4
END
    chmod 755 "$root/usr/local/bin/farm"
}

as_farmhand() {
    if [ -z "$root" ]; then (cd / && runuser -u farmhand -- "$@"); else "$@"; fi
}

as_postgres() {
    (cd / && runuser -u postgres -- "$@")
}
