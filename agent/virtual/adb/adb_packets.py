"""ADB packets: six little-endian words and a payload. A malformed one ends its connection."""

import asyncio
import struct
from dataclasses import dataclass
from enum import IntEnum

VERSION = 0x01000001
PAYLOAD_MAX = 1024 * 1024
_HEADER = struct.Struct("<6I")
# Peers below this version check the sum; newer ones send and expect zero or do not care.
_VERSION_WITHOUT_SUM = 0x01000001


class Word(IntEnum):
    """Commands, as the four letters read little-endian."""

    SYNC = 0x434E5953
    CNXN = 0x4E584E43
    AUTH = 0x48545541
    OPEN = 0x4E45504F
    OKAY = 0x59414B4F
    CLSE = 0x45534C43
    WRTE = 0x45545257


class MalformedPacket(Exception):
    """Bytes that are no ADB packet."""


@dataclass(frozen=True, slots=True)
class Packet:
    word: int
    first: int
    second: int
    payload: bytes = b""


async def read_packet(reader: asyncio.StreamReader) -> Packet:
    """The next packet; raises at the end of the stream."""
    word, first, second, length, _, magic = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if magic != word ^ 0xFFFFFFFF:
        raise MalformedPacket(f"magic {magic:08x} does not belong to {word:08x}")
    if length > PAYLOAD_MAX:
        raise MalformedPacket(f"payload of {length} bytes")
    payload = await reader.readexactly(length) if length else b""
    return Packet(word, first, second, payload)


def encode_packet(packet: Packet, peer_version: int) -> list[bytes]:
    """Header and payload, ready to write."""
    total = sum(packet.payload) & 0xFFFFFFFF if peer_version < _VERSION_WITHOUT_SUM else 0
    magic = packet.word ^ 0xFFFFFFFF
    header = _HEADER.pack(
        packet.word, packet.first, packet.second, len(packet.payload), total, magic
    )
    return [header, packet.payload] if packet.payload else [header]
