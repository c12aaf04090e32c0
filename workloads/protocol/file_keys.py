"""How the fields of a model are written in a YAML file, where that differs from name and type.

A model declares every key once: type, bounds, default and meaning. orchestrator/sweepfile reads
files by these declarations, and docs/generate.py writes the reference pages from them.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, Field, TypeAdapter, model_validator
from pydantic.fields import FieldInfo

from workloads.protocol.base import WireModel
from workloads.units import short_duration


class Form(Enum):
    """How a value is written, where its type does not decide it."""

    DURATION = auto()  # such as 20m; the field holds seconds
    PERCENTAGE = auto()  # such as 2%; the field holds a fraction
    VERBATIM = auto()  # text as it is written, also where YAML would read a boolean


@dataclass(frozen=True)
class Written:
    """How a value is written in a file."""

    form: Form | None = None
    words: Mapping[str, Any] = field(default_factory=dict, hash=False)  # word -> its value
    choices: tuple[str, ...] = ()
    example: str = ""  # a value, for messages
    values: str = ""  # what can be written, for messages and tables
    name: str = ""  # the key, with its section before a dot
    is_key: bool = False


Seconds = Annotated[float, Written(form=Form.DURATION)]
Share = Annotated[float, Written(form=Form.PERCENTAGE)]


def key(
    default: Any,
    meaning: str = "",
    *,
    name: str = "",
    words: Mapping[str, Any] | None = None,
    choices: tuple[str, ...] = (),
    example: str = "",
    values: str = "",
    **limits: Any,
) -> Any:
    """Declare a field that is a key of a file; a default of `...` makes it required."""
    info = Field(default, description=meaning, **limits)
    written = Written(None, words or {}, choices, example, values, name, is_key=True)
    info.metadata.append(written)
    return info


@dataclass(frozen=True)
class FieldType:
    """The type of a field, of an item or of a mapping's values, as it is written in a file."""

    name: str  # of the field
    kind: Any  # without None and without annotations; of a union, all kinds; Any is not read
    written: Written
    bounds: Mapping[str, float]  # by ge, gt, le
    annotation: Any
    info: FieldInfo | None = None  # of a field itself

    @property
    def key(self) -> str:
        """Its key: the name without the unit, which a duration has in its value."""
        name = self.name.removesuffix("_s") if self.written.form is Form.DURATION else self.name
        return self.written.name or name.removesuffix("_")

    @property
    def is_required(self) -> bool:
        """Whether the key has no default."""
        return self.info is not None and self.info.is_required()

    @functools.cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """What checks a value of this type."""
        return TypeAdapter(self.annotation)

    @functools.cached_property
    def parts(self) -> tuple["FieldType", ...]:
        """The types of the items of a list, or of the keys and values of a mapping."""
        parts = [part for part in get_args(self.kind) if part is not ...]
        return tuple(type_of(self.name, part) for part in parts)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that can be written, if it takes only these."""
        words = self.written.choices
        if get_origin(self.kind) is Literal:
            words = get_args(self.kind)
        elif isinstance(self.kind, type) and issubclass(self.kind, Enum):
            words = tuple(member.value for member in self.kind)
        return tuple(self.written.words) or words if words or self.kind is bool else ()

    @property
    def range(self) -> str:
        """The allowed values of a number, in the notation of the file; empty without bounds."""
        shown = {sign: self.notation(bound) for sign, bound in self.bounds.items()}
        if "gt" in shown:
            return f"more than {shown['gt']} and at most {shown['le']}"
        return f"{shown['ge']} to {shown['le']}" if shown else ""

    def notation(self, number: float) -> str:
        """Return a number as the file has it."""
        if self.written.form is Form.DURATION:
            return short_duration(number)
        return f"{100 * number:g}%" if self.written.form is Form.PERCENTAGE else f"{number:.15g}"

    @property
    def model(self) -> type[BaseModel] | None:
        """The model, if the value is a mapping of its keys."""
        is_model = isinstance(self.kind, type) and issubclass(self.kind, BaseModel)
        return self.kind if is_model else None


def type_of(name: str, annotation: Any, info: FieldInfo | None = None) -> FieldType:
    """Return how values of an annotated type are written."""
    rules: list[Any] = []
    kind = _without_annotations(annotation, rules)
    signs = [(sign, getattr(rule, sign, None)) for rule in rules for sign in ("ge", "gt", "le")]
    bounds = {sign: bound for sign, bound in signs if bound is not None}
    found = [vars(rule) for rule in rules if isinstance(rule, Written)]
    parts = {part: value for written in found[::-1] for part, value in written.items() if value}
    written = Written(**parts)
    return FieldType(name, kind, written, bounds, annotation, info)


def _without_annotations(annotation: Any, rules: list[Any]) -> Any:
    """Return the bare type, and collect its annotations, the outermost first."""
    if get_origin(annotation) is Annotated:
        inner, *found = get_args(annotation)
        for rule in found:
            rules.extend(rule.metadata if isinstance(rule, FieldInfo) else [rule])
        return _without_annotations(inner, rules)
    if get_origin(annotation) in (Union, UnionType):
        parts = [part for part in get_args(annotation) if part is not NoneType]
        # Words beside a number are declared as `words`.
        parts = [part for part in parts if get_origin(part) is not Literal] or parts
        kinds = tuple(_without_annotations(part, rules) for part in parts)
        return kinds[0] if len(kinds) == 1 else kinds
    return annotation


@functools.cache
def fields_of(model: type[BaseModel]) -> dict[str, FieldType]:
    """Return how the fields of a model are written."""
    return {
        name: type_of(name, info.rebuild_annotation(), info)
        for name, info in model.model_fields.items()
    }


@functools.cache
def keys_of(model: type[BaseModel]) -> dict[str, dict[str, tuple[FieldType, ...]]]:
    """Return the keys of a model by section, the empty one first.

    Several fields may have one key: each is another way to write it.
    """
    sections: dict[str, dict[str, tuple[FieldType, ...]]] = {"": {}}
    for form in fields_of(model).values():
        if form.written.is_key:
            section, _, key = form.key.rpartition(".")
            keys = sections.setdefault(section, {})
            keys[key] = (*keys.get(key, ()), form)
    return sections


Place = tuple[str | int, ...]  # keys and indices of a file, from the mapping of the model
Problem = tuple[Place, str]
Rule = Callable[[Any], Iterator[Problem]]


def rule(*needs: str) -> Callable[[Rule], Rule]:
    """Mark a method of a RuledModel that compares these fields, and yields what is wrong."""

    def mark(check: Rule) -> Rule:
        check.__dict__["needs"] = needs
        return check

    return mark


@functools.cache
def rules_of(model: type[BaseModel]) -> tuple[tuple[Rule, tuple[str, ...]], ...]:
    """Return the rules of a model, each with the fields that it needs."""
    parts = [part for kind in model.__mro__ for part in tuple(vars(kind).values())]
    return tuple((part, part.needs) for part in parts if hasattr(part, "needs"))


class RuledModel(WireModel):
    """A model with rules that compare its fields, each of which names the place of a problem."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for check, _ in rules_of(type(self)):
            for _, problem in check(self):
                raise ValueError(problem)
        return self
