#!/bin/sh
# install-host.sh - installs the agent of a host with phones as a system service. Run it as root in a
# checkout of Farmhand. It may be run again: it then installs the version of the checkout.
#
#   sudo deploy/install-host.sh [--root DIR]
#
# --root DIR puts everything under DIR and starts nothing, for tests and images.
set -eu
. "$(dirname -- "$0")/install-common.sh"

begin "$@"
make_environment --requirement "$here/deploy/agent-requirements.txt"
install_farmhand --no-deps
put_file deploy/systemd/51-farmhand.rules /etc/udev/rules.d
put_service farm-agent.service
if [ -z "$root" ]; then
    udevadm control --reload
    udevadm trigger --subsystem-match=usb
fi
echo "The agent is installed. On the centre: farm host add NAME. Run the command that it prints here,"
echo "then: systemctl enable --now farm-agent"
