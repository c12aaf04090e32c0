"""Reads a model from YAML nodes: the model alone declares keys, types, bounds and defaults.

Each key is checked by itself, then the rules of the model are checked on the fields that they
need. So every mistake is reported at once, each at its own place in the file.
"""

from collections.abc import Mapping
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from orchestrator.sweepfile.node_reader import NodeReader
from orchestrator.sweepfile.yaml_nodes import (
    ErrorNode,
    ListNode,
    MappingEntry,
    MappingNode,
    Node,
    ScalarNode,
)
from workloads.protocol.file_keys import FieldType, Form, Place, fields_of, keys_of, rules_of
from workloads.text import one_of, safe_text

Model = TypeVar("Model", bound=BaseModel)
_RANGE_ERRORS = {"greater_than", "greater_than_equal", "less_than_equal"}


def written_keys(*models: type[BaseModel]) -> list[str]:
    """Return the keys that a mapping may have at its top, the names of sections among them."""
    sections = [section for model in models for section in keys_of(model).items()]
    return [key for name, keys in sections for key in ([name] if name else keys)]


def read_model(
    reader: NodeReader,
    model: type[Model],
    node: Node,
    path: str,
    example: str,
    known: Mapping[str, Any] | None = None,
) -> Model | None:
    """Read a mapping that has no keys but those of a model; None if it is not a mapping."""
    mapping = reader.mapping(node, path, example)
    if mapping is None:
        return None
    reader.refuse_unknown(mapping, written_keys(model), path)
    return read_keys(reader, model, mapping, path, known)


def read_keys(
    reader: NodeReader,
    model: type[Model],
    mapping: MappingNode,
    path: str = "",
    known: Mapping[str, Any] | None = None,
) -> Model:
    """Read the keys of a model that a mapping has; after a mistake, the result is incomplete."""
    before = len(reader.problems.items)
    values = dict(known or {})
    unclear: set[str] = set()  # fields without a valid value
    for section, keys in keys_of(model).items():
        inner = _section(reader, mapping, path, section, keys) if section else mapping
        for key, forms in keys.items():
            entry = inner.entries.get(key) if inner else None
            if entry is not None:
                read = read_key(reader, model, key, entry.node, _join(path, section, key))
                values |= read
                unclear |= set() if read else {form.name for form in forms}
            elif inner is None or forms[0].is_required:
                unclear |= {form.name for form in forms}
                if inner is not None:
                    _report_missing(reader, inner, _join(path, section), key, forms[0])
    partial = model.model_construct(**values)
    for check, needs in rules_of(model):
        for place, problem in check(partial) if unclear.isdisjoint(needs) else ():
            reader.refuse(*_locate(mapping, path, place), problem)
    try:
        return partial if len(reader.problems.items) > before else model(**values)
    except ValidationError as error:
        reader.report(mapping.location, path, safe_text(error.errors()[0]["msg"], 200))
        return partial


def read_key(
    reader: NodeReader, model: type[BaseModel], key: str, node: Node, path: str
) -> dict[str, Any]:
    """Read the value of one key, as the field that it sets; nothing after a mistake."""
    forms = next(keys[key] for keys in keys_of(model).values() if key in keys)
    form = next((form for form in forms if _is_written_so(form, node)), forms[0])
    if isinstance(node, ScalarNode) and node.text in form.written.words:
        return {form.name: form.written.words[node.text]}
    value = _read(reader, form, node, path)
    return {} if value is None else {form.name: value}


def _is_written_so(kind: FieldType, node: Node) -> bool:
    """Whether a node looks like a value that only this type has."""
    if kind.written.form is Form.PERCENTAGE:
        return isinstance(node, ScalarNode) and "%" in node.text
    return kind.model is not None and isinstance(node, MappingNode)


def _section(
    reader: NodeReader,
    mapping: MappingNode,
    path: str,
    section: str,
    keys: Mapping[str, tuple[FieldType, ...]],
) -> MappingNode | None:
    """Return the mapping of a section; None after a mistake."""
    name, (form, *_) = next(iter(keys.items()))
    example = f"{{{name}: {form.written.example}}}"
    if section not in mapping.entries:
        problem = f"the key '{section}' is missing; write '{section}: {example}'"
        reader.report(mapping.location, path, problem)
        return None
    node, inner_path = mapping.entries[section].node, _join(path, section)
    inner = reader.mapping(node, inner_path, example)
    if inner is not None:
        reader.refuse_unknown(inner, keys, inner_path)
    return inner


def _report_missing(
    reader: NodeReader, mapping: MappingNode, path: str, key: str, form: FieldType
) -> None:
    hint = f"; write '{key}: {form.written.example}'" if form.written.example else ""
    hint = f"; use {one_of(form.choices)}" if form.choices else hint
    reader.report(mapping.location, path, f"the key '{key}' is missing{hint}")


def _locate(node: Node, path: str, place: Place) -> tuple[Node, str]:
    """Return the node at a place, or the mapping in which it is missing, with its path."""
    for step in place:
        path = f"{path}[{step}]" if isinstance(step, int) else _join(path, step)
        if isinstance(node, ListNode) and isinstance(step, int):
            node = node.items[step]
        elif isinstance(node, MappingNode) and step in node.entries:
            node = node.entries[str(step)].node
    return node, path


def _read(reader: NodeReader, kind: FieldType, node: Node, path: str) -> Any:
    """Read a value of a type, and check it; None after a mistake."""
    if isinstance(node, ErrorNode):
        return None
    if kind.kind is Any:
        return node
    if kind.model is not None:
        return read_model(reader, kind.model, node, path, kind.written.example)
    before = len(reader.problems.items)
    value: Any
    if get_origin(kind.kind) is tuple:
        value = _read_items(reader, kind, node, path)
    elif get_origin(kind.kind) is dict:
        value = _read_mapping(reader, kind, node, path)
    else:
        value = _read_scalar(reader, kind, node, path)
    if value is None or len(reader.problems.items) > before:
        return value  # a part that is valid may still be needed by a rule
    try:
        return kind.adapter.validate_python(value)
    except ValidationError as error:
        shown = node.text if isinstance(node, ScalarNode) else ""
        reader.refuse(node, path, _sentence(error, kind, shown))
        return value if isinstance(value, tuple) else None


def _sentence(error: ValidationError, kind: FieldType, shown: str) -> str:
    """Return what is wrong with a value, and what to write instead."""
    first = error.errors()[0]
    context = first.get("ctx", {})
    if first["type"] in _RANGE_ERRORS:
        return f"{safe_text(shown, 40)} is out of range; use {kind.range}"
    if first["type"] == "too_long":
        return f"{context['actual_length']} items; use at most {context['max_length']}"
    if first["type"] == "too_short":
        return f"{context['actual_length']} items; use at least {context['min_length']}"
    if first["type"] == "string_too_long":
        return f"the text is too long; use at most {context['max_length']} characters"
    return safe_text(context.get("error", first["msg"]), 400)


def _read_scalar(reader: NodeReader, kind: FieldType, node: Node, path: str) -> Any:
    form = kind.written.form
    wanted = kind.written.values.replace("`", "'") or "a word"
    if form is Form.VERBATIM:
        scalar = reader.scalar(node, path, wanted)
        return scalar and scalar.text
    if kind.choices:
        what = "value" if kind.written.words else kind.name
        return reader.choice(node, path, kind.choices, what)
    if form is Form.PERCENTAGE:
        return reader.percentage(node, path)
    if form is Form.DURATION:
        return reader.duration(node, path)
    is_name = isinstance(node, ScalarNode) and node.text[:1].isalpha()
    if kind.kind is int or (kind.kind == (int, str) and not is_name):
        return reader.integer(node, path)
    if kind.kind is float:
        return reader.decimal(node, path)
    if kind.kind is bool:
        return reader.boolean(node, path)
    text = reader.text(node, path, wanted)
    if text is None or text.strip() or not kind.written.values:
        return text
    return reader.refuse(node, path, f"the value is missing; write {wanted}")


def _read_items(
    reader: NodeReader, kind: FieldType, node: Node, path: str
) -> tuple[Any, ...] | None:
    """Read a list, or a mapping of named items."""
    (item,) = kind.parts
    if item.model is not None:
        return _read_named(reader, item, item.model, kind.written.example, node, path)
    if item.written.form is not Form.VERBATIM:
        return reader.distinct_values(node, path, lambda *at: _read(reader, item, *at)) or None
    nodes = reader.items(node, path)
    if nodes is None:
        return None
    # The place of a rule's problem is an index, so an item with a mistake stays, as an empty one.
    return tuple(_read(reader, item, n, f"{path}[{i}]") or "" for i, n in enumerate(nodes))


def _read_named(
    reader: NodeReader, item: FieldType, model: type[Model], example: str, node: Node, path: str
) -> tuple[Model, ...] | None:
    """Read a mapping whose keys are the names of its items."""
    mapping = reader.mapping(node, path, example)
    if mapping is None:
        return None
    (keys,) = keys_of(model).values()
    items = []
    for entry in mapping.entries.values():
        _is_name(reader, fields_of(model)["name"], entry, path)
        known: dict[str, Any] = {"name": entry.key}
        item_path = _join(path, entry.key)
        if len(keys) == 1:  # the value is that of the only key
            (key,) = keys
            known |= read_key(reader, model, key, entry.node, item_path)
            items.append(model.model_construct(**known))
        else:
            part = read_model(reader, model, entry.node, item_path, item.written.example, known)
            items.append(part or model.model_construct(**known))
    return tuple(items)


def _read_mapping(
    reader: NodeReader, kind: FieldType, node: Node, path: str
) -> dict[str, Any] | None:
    """Read a mapping with free keys."""
    mapping = reader.mapping(node, path, kind.written.example)
    if mapping is None:
        return None
    key_type, value_type = kind.parts
    values = {
        entry.key: _read(reader, value_type, entry.node, _join(path, entry.key))
        for entry in mapping.entries.values()
        if _is_name(reader, key_type, entry, path)
    }
    return {key: value for key, value in values.items() if value is not None}


def _is_name(reader: NodeReader, kind: FieldType, entry: MappingEntry, path: str) -> bool:
    """Whether a free key is valid; if not, the problem is recorded."""
    try:
        kind.adapter.validate_python(entry.key)
    except ValidationError as error:
        reader.report(entry.location, path, _sentence(error, kind, entry.key))
        return False
    return True


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)
