"""Parses the bytes of a terminal into names of keys."""

_SEQUENCES = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[C": "right",
    b"\x1bOC": "right",
    b"\x1b[D": "left",
    b"\x1bOD": "left",
    b"\x1b[5~": "pageup",
    b"\x1b[6~": "pagedown",
    b"\x1b[H": "home",
    b"\x1bOH": "home",
    b"\x1b[1~": "home",
    b"\x1b[F": "end",
    b"\x1bOF": "end",
    b"\x1b[4~": "end",
}
_CONTROLS = {
    b"\r": "enter",
    b"\n": "enter",
    b"\t": "tab",
    b"\x7f": "backspace",
    b"\x08": "backspace",
    b"\x04": "pagedown",  # Ctrl-D, as in less
    b"\x06": "pagedown",
    b"\x15": "pageup",  # Ctrl-U, as in less
    b"\x02": "pageup",
    b"\x0c": "redraw",
}
_ESCAPE = b"\x1b"


def parse_keys(typed: bytes) -> tuple[list[str], bytes]:
    """Return the keys that were typed, and the bytes of an incomplete one.

    A lone escape is a key if nothing follows it; unknown sequences are dropped.
    """
    keys: list[str] = []
    while typed:
        if typed[:1] == _ESCAPE:
            key, length = _escape(typed)
        elif typed[:1] in _CONTROLS:
            key, length = _CONTROLS[typed[:1]], 1
        elif typed[0] < 0x20:
            key, length = "", 1
        else:
            key, length = _letter(typed)
        if length == 0:
            return keys, typed
        if key:
            keys.append(key)
        typed = typed[length:]
    return keys, b""


def _escape(typed: bytes) -> tuple[str, int]:
    if len(typed) == 1 or typed[1:2] == _ESCAPE:
        return "escape", 1
    if typed[1:2] not in (b"[", b"O"):
        return "escape", 1
    for end in range(2, min(len(typed), 32)):
        if 0x40 <= typed[end] <= 0x7E:  # the letter that ends a sequence
            return _SEQUENCES.get(typed[: end + 1], ""), end + 1
    return ("", 0) if len(typed) < 32 else ("", 32)


def _letter(typed: bytes) -> tuple[str, int]:
    first = typed[0]
    length = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if len(typed) < length:
        return "", 0
    text = typed[:length].decode(errors="ignore")
    return (text, length) if text and text.isprintable() else ("", 1)
