"""`farm workload`: lists and sizes workloads; `new` and `add` are in workload_files.py."""

import re
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from orchestrator.commands.common import json_option, print_json, print_table
from orchestrator.commands.completion import complete_workload
from orchestrator.commands.workload_files import add, new, print_engines
from workloads.cli_options import COUNT
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

if TYPE_CHECKING:
    from workloads.catalogue import Case

_WORKLOAD = click.argument("name", metavar="WORKLOAD", shell_complete=complete_workload)


@click.group()
def workload() -> None:
    """List and size workloads; start a new one; add files of programs and data sets."""


workload.add_command(add)
workload.add_command(new)


@workload.command("list")
@click.option("--engines", is_flag=True, help="List the engines for 'farm workload new' instead.")
@json_option
def list_workloads(engines: bool, as_json: bool) -> None:
    """List all workloads, grouped by study.

    \b
    Examples:
      farm workload list
      farm workload list --engines
    """
    from workloads.catalogue import CATALOGUE

    if engines:
        print_engines(as_json)
    elif as_json:
        print_json(
            {
                name: {
                    "text": item.text,
                    "study": item.study.name,
                    "parameters": {p.name: p.default for p in item.parameters},
                }
                for name, item in CATALOGUE.items()
            }
        )
    elif sys.stdout.isatty():
        for line in _list_lines():
            click.echo(line)
    else:
        rows = [
            (
                *(name, item.study.name),
                ", ".join(f"{p.name}={p.default}" for p in item.parameters) or "-",
                item.text,
            )
            for name, item in CATALOGUE.items()
        ]
        print_table(("WORKLOAD", "STUDY", "PARAMETERS", "WHAT IT DOES"), rows)


def _list_lines() -> Iterator[str]:
    """List every workload by study, without the inference variants."""
    from workloads.catalogue import CATALOGUE
    from workloads.workload_table import INFERENCE_SUFFIX, STUDIES

    for study in STUDIES:
        yield f"{study.name}: {study.text}"
        for name, item in CATALOGUE.items():
            if item.study == study and not name.endswith(INFERENCE_SUFFIX):
                yield f"  {name:<17} {item.text}"
        yield ""
    yield f"Every training workload has an inference variant, e.g. resnet50{INFERENCE_SUFFIX}."
    yield "'farm workload show NAME' prints parameters, cost, memory and sources."


@workload.command()
@_WORKLOAD
@click.option("--batch-size", type=COUNT, help="Same as --with batch_size=N.")
@click.option("--with", "given", multiple=True, metavar="NAME=N", help="Set a parameter.")
@json_option
def show(name: str, batch_size: int | None, given: tuple[str, ...], as_json: bool) -> None:
    """Show a workload: parameters, cost, memory, sources.

    Example: farm workload show lenet --batch-size 32
    """
    from orchestrator.commands.workload_view import workload_json, workload_lines
    from workloads.catalogue import bind

    chosen = dict(_parse_parameter(text) for text in given)
    if batch_size is not None:
        chosen["batch_size"] = batch_size
    case = bind(name, chosen)
    if as_json:
        print_json(workload_json(case))
        return
    for line in workload_lines(case):
        click.echo(line)


@workload.command()
@click.argument(
    "names", metavar="WORKLOAD...", nargs=-1, required=True, shell_complete=complete_workload
)
@click.option("--memory", required=True, metavar="BYTES", help="Memory budget: 512MB, 1GB, 2GiB.")
@click.option("--with", "given", multiple=True, metavar="NAME=N,...", help="Set a parameter.")
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    help="Threads of the engine; each needs memory. By default those of the workload, or 8.",
)
@json_option
def fit(
    names: tuple[str, ...], memory: str, given: tuple[str, ...], threads: int | None, as_json: bool
) -> None:
    """Find the largest batch that fits into a memory budget.

    With several workloads or values of a parameter, print a table. A parameter applies to the
    workloads that have it.

    \b
    Examples:
      farm workload fit resnet50 --memory 1GB
      farm workload fit decoder-15m decoder-15m-lora --memory 1GB --with text_length=128,512
    """
    from kernels.plan_memory import PHONE_CORES, needed_with_threads
    from workloads.catalogue import thread_count
    from workloads.memory_budget import BATCH, fit_batch
    from workloads.units import parse_bytes

    try:
        budget = parse_bytes(memory)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
    choices = _parse_choices(given)
    if BATCH in choices:
        raise InvalidRequest(f"{BATCH} is what this command finds; leave it out")
    rows: list[dict[str, Any]] = []
    for case in _chosen_cases(names, choices):
        count = threads or thread_count(case, PHONE_CORES)
        chosen = {key: case.parameters.get(key) for key in choices}
        needs = partial(needed_with_threads, threads=count)
        batch, needed = fit_batch(case.workload, budget, case.parameters, needs)
        row = {"workload": case.workload, **chosen, "threads": count, "budget_bytes": budget}
        rows.append(row | {BATCH: batch, "needed_bytes": needed})
    if as_json:
        print_json(rows if len(rows) > 1 else rows[0])
    else:
        _print_fits(rows)


def _parse_choices(given: tuple[str, ...]) -> dict[str, list[int]]:
    """Return the distinct values of every parameter."""
    choices: dict[str, list[int]] = {}
    for text in given:
        name, _, values = text.partition("=")
        for value in values.split(","):
            number = _parse_number(value, text)
            if number not in choices.setdefault(name, []):
                choices[name].append(number)
    return choices


def _chosen_cases(names: tuple[str, ...], choices: dict[str, list[int]]) -> "Iterator[Case]":
    """Yield every combination of values for every workload, of the parameters that it has."""
    from workloads.catalogue import bind

    defaults = {name: bind(name, {}).parameters for name in names}
    for key, values in choices.items():
        if not any(key in parameters for parameters in defaults.values()):
            bind(names[0], {key: values[0]})  # raises InvalidRequest
    for name, parameters in defaults.items():
        own = [[(key, value) for value in choices[key]] for key in choices if key in parameters]
        for chosen in product(*own):
            yield bind(name, dict(chosen))


def _print_fits(rows: list[dict[str, Any]]) -> None:
    from workloads.memory_budget import BATCH
    from workloads.units import count_text, format_bytes

    if len(rows) == 1:
        row, batch, budget = rows[0], rows[0][BATCH], format_bytes(rows[0]["budget_bytes"])
        how = "does not fit" if batch is None else "fits"
        size = ": a batch of 1 needs" if batch is None else f" with a batch of {batch}, which needs"
        need = f"{format_bytes(row['needed_bytes'])} with {count_text(row['threads'], 'thread')}"
        click.echo(f"{row['workload']} {how} into {budget}{size} {need}.")
        return
    print_table(
        [*list(rows[0])[:-3], "largest batch", "needs"],
        [
            [
                *("-" if value is None else value for value in list(row.values())[:-3]),
                *(row[BATCH] or "none", format_bytes(row["needed_bytes"])),
            ]
            for row in rows
        ],
    )


def _parse_parameter(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    return name, _parse_number(value, text)


def _parse_number(value: str, text: str) -> int:
    if re.fullmatch("[0-9]{1,40}", value) is None:
        raise InvalidRequest(f"'{safe_text(text, 60)}' is not NAME=N with a whole number N")
    return int(value)
