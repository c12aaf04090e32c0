"""A phone with wireless debugging in its own network, and a lab that pairs with it.

Usage, in a new network namespace: python -m tests.agent.wireless_phone FOLDER. The phone announces
its services by multicast DNS (RFC 6762, RFC 6763), where adb's own mDNS listens: on interfaces that
are up, except loopback. So the namespace gets a pair of virtual Ethernet interfaces. The addresses
that are announced are those of loopback.
"""

import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

from agent.deadline import Deadline
from agent.virtual.fleet_server import FleetConfig
from tests.agent.pairing_server import PairingServer, certificate_file
from tests.virtual.running_fleet import serve_fleet_in_thread

CODE, GUID = "592781", "adb-R5CT10XYZ1A-a1B2c3"
ADDRESS, GROUP = "10.77.0.1", ("224.0.0.251", 5353)
LINKS = (
    "link set lo up",
    "link add air0 type veth peer name air1",
    f"addr add {ADDRESS}/24 dev air0",
    "link set air0 up multicast on",
    "link set air1 up",
    "route add 224.0.0.0/4 dev air0",
)
_A, _PTR, _TXT, _SRV = 1, 12, 16, 33
_UNIQUE, _INTERNET, _TTL_S = 0x8000, 1, 120
FARM = (sys.executable, "-m", "orchestrator")


def name(text: str) -> bytes:
    """Encode a name of DNS."""
    return b"".join(bytes([len(label)]) + label.encode() for label in text.split(".")) + b"\0"


def record(owner: str, kind: int, data: bytes) -> bytes:
    """Encode a record; several services may share a pointer."""
    flags = _INTERNET | (0 if kind == _PTR else _UNIQUE)
    return name(owner) + struct.pack(">HHIH", kind, flags, _TTL_S, len(data)) + data


def announcement(instance: str, service: str, port: int) -> bytes:
    """Encode an unsolicited answer: the service, its port and its address."""
    full = f"{instance}.{service}.local"
    records = (
        record(f"{service}.local", _PTR, name(full)),
        record(full, _SRV, struct.pack(">HHH", 0, 0, port) + name("phone.local")),
        record(full, _TXT, b"\x04v=41"),
        record("phone.local", _A, socket.inet_aton("127.0.0.1")),
    )
    return struct.pack(">HHHHHH", 0, 0x8400, 0, len(records), 0, 0) + b"".join(records)


def announce(packet: bytes, stop: threading.Event) -> None:
    """Announce a service until the end; a phone repeats its announcements too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            sender.setsockopt(socket.SOL_SOCKET, option, 1)
        sender.bind((ADDRESS, GROUP[1]))
        interface = socket.inet_aton(ADDRESS)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
        while not stop.wait(0.3):
            sender.sendto(packet, GROUP)


def farm(*words: str) -> str:
    """Run a command, and return what it said."""
    done = subprocess.run([*FARM, *words], capture_output=True, text=True, timeout=600, check=False)
    return done.stdout + done.stderr


def main() -> None:
    """Pair with the phone as a user does, and print what the user sees."""
    folder = Path(sys.argv[1])
    for words in LINKS:
        subprocess.run(["ip", *words.split()], check=True)
    lab = ("--lab", str(folder / "lab"))
    pairing, stop = PairingServer(CODE, GUID, certificate_file(folder)), threading.Event()
    with serve_fleet_in_thread(FleetConfig(("meizu-16t",))) as (_, (phone,)):
        packet = announcement(GUID, "_adb-tls-connect._tcp", int(phone.address.split(":")[1]))
        thread = threading.Thread(target=announce, args=(packet, stop))
        thread.start()
        try:
            farm("up", "-d", *lab)
            deadline, said = Deadline.after(120), "no agent is running"
            while "no agent is running" in said and not deadline.expired:
                said = farm("phone", "connect", pairing.address, "--pair", CODE, *lab)
            sys.stdout.write(said + farm("phone", "list", *lab))
        finally:
            farm("down", *lab)
            stop.set()
            thread.join()
    pairing.close()


if __name__ == "__main__":
    main()
