"""The identity of a model or step definition, as JSON-like content that a digest covers.

Ids of stored results rest on it. It therefore uses explicit tags instead of the names of Python
classes, and leaves out fields at their default value, so that neither a renamed class nor a new
field with a default changes the id of an existing case. Field names are part of the identity.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, ClassVar


class Tagged:
    """Base of definitions that exist in several kinds; the tag names the kind and never changes."""

    tag: ClassVar[str]


def canonical(value: Any) -> Any:
    """Turn a definition into JSON-like content that is equal exactly if the definition is."""
    if is_dataclass(value):
        content = {
            field.name: canonical(getattr(value, field.name))
            for field in fields(value)
            if field.default is MISSING or getattr(value, field.name) != field.default
        }
        return [value.tag, content] if isinstance(value, Tagged) else content
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [canonical(item) for item in value]
    return value
