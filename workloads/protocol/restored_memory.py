"""Limits on what is restored from compressed content, checked while it is restored.

The size of what arrives says nothing: 339 bytes can become gigabytes.
"""

import zlib

# Of memory in Python. A number that is parsed from a text is counted with its text.
_LIST_BYTES, _DICT_BYTES, _PARSED_BYTES, _ITEM_BYTES = 56, 64, 16, 32


class RestoredMemory:
    """The memory that restored content may still take; several contents can share one."""

    def __init__(self, bytes_max: int) -> None:
        self.left = bytes_max

    def spend(self, size: int) -> None:
        """Count bytes before they are taken; ValueError if they are too many."""
        if size > self.left:
            raise ValueError("it is too large when it is restored")
        self.left -= size

    def inflate(self, content: bytes, wbits: int = zlib.MAX_WBITS) -> bytes:
        """Return decompressed bytes; ValueError or zlib.error if they are too many or cut."""
        decompressor = zlib.decompressobj(wbits)
        text = decompressor.decompress(content, self.left + 1)
        self.spend(len(text))
        if not decompressor.eof:
            raise ValueError("its end is missing")
        return text

    def spend_json(self, text: bytes) -> None:
        """Count what the values of a JSON text take in memory, before it is parsed."""
        lists, objects, commas = (text.count(sign) for sign in (b"[", b"{", b","))
        self.spend(lists * _LIST_BYTES + objects * _DICT_BYTES + commas * _PARSED_BYTES)

    def spend_items(self, count: int, width: int = 0) -> None:
        """Count items of a list, each with this much more beside its number."""
        self.spend(count * (_ITEM_BYTES + width))
