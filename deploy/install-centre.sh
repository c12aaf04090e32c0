#!/bin/sh
# install-centre.sh - installs the central services of a lab: broker, scheduler, ingest and API, with
# PostgreSQL as the store. Run it as root in a checkout of Farmhand. It may be run again: it then
# installs the version of the checkout and keeps the lab.
#
#   sudo deploy/install-centre.sh NAME [--root DIR]
#
# NAME is the name by which the other computers reach this one, e.g. centre.lab.
# --root DIR puts everything under DIR and starts nothing, for tests and images.
set -eu
. "$(dirname -- "$0")/install-common.sh"

name=${1-}
case "$name" in '' | -*) die "say by which name others reach this computer, e.g.: $0 centre.lab" ;; esac
shift
begin "$@"
[ -n "$root" ] || need redis-server psql
make_environment
install_farmhand --constraint "$here/constraints.txt"
for unit in farm-broker.service farm-scheduler.service farm-ingest@.service farm-api.service; do
    put_service "$unit"
done
lab=$root/var/lib/farmhand/lab
if [ ! -f "$lab/lab.toml" ]; then
    as_farmhand "$venv/bin/farm" lab init --name "$name" --lab "$lab"
    # PostgreSQL of this computer, over its socket: it knows the user, so there is no password.
    sed -i '/^\[store\]/a url = "postgresql+psycopg://farmhand@/farmhand?host=/run/postgresql"' "$lab/lab.toml"
fi
if [ -z "$root" ]; then
    systemctl disable --now redis-server.service 2>/dev/null || true # Debian's own, without TLS
    systemctl enable --now postgresql.service
    as_postgres psql -Atc "SELECT 1 FROM pg_roles WHERE rolname = 'farmhand'" | grep -q 1 ||
        as_postgres createuser farmhand
    as_postgres psql -Atc "SELECT 1 FROM pg_database WHERE datname = 'farmhand'" | grep -q 1 ||
        as_postgres createdb --owner farmhand farmhand
    systemctl enable --now farm-broker farm-scheduler farm-ingest@1 farm-ingest@2 farm-api
fi
echo "The lab is installed. Create a token for yourself with: farm lab token add YOUR-NAME --role admin"
