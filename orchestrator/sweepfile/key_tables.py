"""The keys of sweep files and manifests as tables: for the reference pages and `farm help`."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import BaseModel

from orchestrator.sweepfile import sweep_file
from orchestrator.sweepfile.cell_rules import RuleKeys
from orchestrator.sweepfile.phone_selection import PhoneKeys
from orchestrator.sweepfile.policy import Budget, Collect, Policy, RetryLimits, StopRule
from orchestrator.sweepfile.workload_reader import WorkloadKeys
from workloads.protocol.condition import Condition
from workloads.protocol.file_keys import FieldType, Form, keys_of

HELP_WIDTH = 96
# The mappings of a sweep file, by the path of their keys.
SWEEP_SECTIONS: dict[str, tuple[type[BaseModel], ...]] = {
    "": (sweep_file.SweepKeys, Policy),
    "workload": (WorkloadKeys,),
    "phones": (PhoneKeys,),
    "exclude[], include[]": (RuleKeys,),
    "conditions": (Condition,),
    "repeat": (StopRule,),
    "order": (sweep_file.OrderKeys,),
    "retry": (RetryLimits,),
    "budget": (Budget,),
    "collect": (Collect,),
}
_NOUNS: dict[Form | None, str] = {Form.DURATION: "a duration", Form.PERCENTAGE: "a percentage"}


class KeyRow(NamedTuple):
    """What a table says about one key."""

    key: str
    values: str
    default: str
    meaning: str


def key_rows(*models: type[BaseModel], prefix: str = "") -> Iterator[KeyRow]:
    """Yield what the models declare about every key."""
    for model in models:
        for section, keys in keys_of(model).items():
            for key, forms in keys.items():
                path = ".".join(part for part in (prefix, section, key) if part)
                values = " or ".join(_values_text(form) for form in forms)
                meaning = model.model_fields[forms[0].name].description
                if not meaning:
                    raise LookupError(f"{model.__name__}.{forms[0].name} has no meaning")
                yield KeyRow(path, values, _default_text(forms[0]), meaning)


def _values_text(form: FieldType) -> str:
    """Return what can be written."""
    if form.written.values:
        return form.written.values
    if form.choices:
        return ", ".join(f"`{choice}`" for choice in form.choices)
    if form.kind is bool:
        return "`true`, `false`"
    noun = "a mapping" if form.model else _NOUNS.get(form.written.form, "")
    text = ", ".join(part for part in (noun, form.range) if part) or "text"
    text = f"`{form.written.example}`" if text == "text" and form.written.example else text
    return " or ".join([text, *(f"`{word}`" for word in form.written.words)])


def _default_text(form: FieldType) -> str:
    """Return the default as it is written in a file."""
    if form.info is None or form.is_required:
        return "required"
    default = form.info.default
    for word, value in form.written.words.items():
        if value == default:
            return f"`{word}`"
    if isinstance(default, bool):
        return f"`{default}`".lower()
    if isinstance(default, int | float):
        return f"`{form.notation(default)}`"
    return f"`{default}`" if isinstance(default, str) and default else ""


def help_text() -> str:
    """Return the page of `farm help sweep-file`."""
    parts = [inspect.getdoc(sweep_file) or ""]
    for title, models in SWEEP_SECTIONS.items():
        parts.append(f"\nKeys of {title}:" if title else "\nKeys:")
        parts += [_help_line(row) for row in key_rows(*models)]
    return "\n".join(parts)


def _help_line(row: KeyRow) -> str:
    text = f"{row.meaning} ({row.values}{row.default and '; '}{row.default})"
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text.replace("`", ""))
    return textwrap.fill(
        f"  {row.key:<18} {text}", HELP_WIDTH, subsequent_indent=" " * 21, break_on_hyphens=False
    )
