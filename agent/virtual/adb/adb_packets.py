"""ADB packets: a header of six little-endian words and a payload. A malformed packet ends its
connection.
"""

import asyncio
import struct
from dataclasses import dataclass
from enum import IntEnum

VERSION = 0x01000001
PAYLOAD_MAX = 1024 * 1024
_HEADER = struct.Struct("<6I")
# Peers below this version verify the checksum; newer ones send zero and ignore it.
_VERSION_WITHOUT_CHECKSUM = 0x01000001


class AdbCommand(IntEnum):
    """Packet commands: four letters read as a little-endian word."""

    SYNC = 0x434E5953
    CNXN = 0x4E584E43
    AUTH = 0x48545541
    OPEN = 0x4E45504F
    OKAY = 0x59414B4F
    CLSE = 0x45534C43
    WRTE = 0x45545257


class MalformedPacket(Exception):
    """The bytes are not an ADB packet."""


@dataclass(frozen=True, slots=True)
class AdbPacket:
    command: int
    arg0: int
    arg1: int
    payload: bytes = b""


async def read_packet(reader: asyncio.StreamReader) -> AdbPacket:
    """Read the next packet; raise at the end of the stream."""
    command, arg0, arg1, length, _, magic = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if magic != command ^ 0xFFFFFFFF:
        raise MalformedPacket(f"magic {magic:08x} does not match command {command:08x}")
    if length > PAYLOAD_MAX:
        raise MalformedPacket(f"payload of {length} bytes")
    payload = await reader.readexactly(length) if length else b""
    return AdbPacket(command, arg0, arg1, payload)


def encode_packet(packet: AdbPacket, peer_version: int) -> list[bytes]:
    """Return header and payload, ready to write."""
    checksum = sum(packet.payload) & 0xFFFFFFFF if peer_version < _VERSION_WITHOUT_CHECKSUM else 0
    magic = packet.command ^ 0xFFFFFFFF
    header = _HEADER.pack(
        packet.command, packet.arg0, packet.arg1, len(packet.payload), checksum, magic
    )
    return [header, packet.payload] if packet.payload else [header]
