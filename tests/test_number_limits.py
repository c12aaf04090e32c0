"""Every number that a person enters has finite limits."""

import math
import re
from collections.abc import Iterator

import click
import pytest
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel

from docs.generate import walk_commands
from orchestrator.cli import farm
from workloads.cli_options import FiniteRange
from workloads.lab.service_settings import LISTEN_PATTERN
from workloads.lab.settings import LabSettings

NUMBERS = (click.types.IntParamType, click.types.FloatParamType)


def numeric_settings(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, list[object]]]:
    """Yield every setting that is a number, with its limits."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from numeric_settings(kind, f"{path}{name}.")
        elif kind in (int, float):
            yield path + name, field.metadata


def test_every_number_of_the_command_line_has_limits() -> None:
    checked = []
    for path, command in walk_commands(farm, click.Context(farm, info_name="farm")):
        for option in command.params:
            if isinstance(option.type, NUMBERS):
                kind, where = option.type, (*path, option.name)
                assert isinstance(kind, click.IntRange | FiniteRange), where
                assert None not in (kind.min, kind.max), where
                checked.append(where)
    assert len(checked) > 40


def test_every_number_of_lab_toml_has_limits() -> None:
    settings = dict(numeric_settings(LabSettings))
    assert "agent.adb_port" in settings
    for name, limits in settings.items():
        assert any(isinstance(limit, Ge | Gt) for limit in limits), name
        assert any(isinstance(limit, Le | Lt) for limit in limits), name


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e309", math.nan])
def test_a_range_refuses_what_is_not_finite(value: object) -> None:
    with pytest.raises(click.BadParameter):
        FiniteRange(0, 10).convert(value, None, None)


@pytest.mark.parametrize(
    ("listen", "is_valid"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("name.lab:1", True),
        ("::1:1", False),
        ("x", False),
    ],
)
def test_an_ipv6_address_to_listen_on_is_in_brackets(listen: str, is_valid: bool) -> None:
    """Without them, the URL that is made of it cannot be used."""
    assert (re.fullmatch(LISTEN_PATTERN, listen) is not None) == is_valid
