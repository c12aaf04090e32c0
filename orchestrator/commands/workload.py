"""`farm workload`: lists workloads, and adds the files of external programs and data sets."""

import re
import sys
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from orchestrator.commands.common import connect, json_option, lab_option, print_json, print_table
from orchestrator.commands.completion import complete_workload
from workloads.cli_options import COUNT, value_option
from workloads.input_file import open_input
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.app.lab_connection import LabConnection
    from workloads.catalogue import Case

_WORKLOAD = click.argument("name", metavar="WORKLOAD", shell_complete=complete_workload)


@click.group()
def workload() -> None:
    """List workloads; start a new one; add files of external programs and data sets."""


@workload.command("list")
@json_option
def list_workloads(as_json: bool) -> None:
    """List all workloads, grouped by study.

    Example: farm workload list
    """
    from workloads.catalogue import CATALOGUE

    if as_json:
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


@workload.command("new")
@click.argument("name")
def new(name: str) -> None:
    """Write the commented file of a model NAME, and its table line.

    The files are in workloads/models/ of this installation. The new workload can be used at
    once; a running lab must be restarted to use it.

    Example: farm workload new my-net
    """
    import workloads.models
    from orchestrator.commands.start_files import check_name, write_model
    from workloads.catalogue import CATALOGUE

    if check_name(name) in CATALOGUE:
        raise InvalidRequest(f"there is a workload '{name}' already; choose another name")
    models = Path(workloads.models.__path__[0])
    click.echo(str(write_model(name, models)))
    click.echo(f"Its line is in {models / 'own_models.py'}.", err=True)
    click.echo(f"See its cost and memory with: farm workload show {name}", err=True)


@workload.command("add-file")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@lab_option
@json_option
def add_file(files: tuple[Path, ...], lab_folder: Path, as_json: bool) -> None:
    """Copy FILES of an external program into the lab, by digest.

    Prints NAME: DIGEST of each, as a manifest lists them. A host with its own lab folder needs the
    files there too.

    Example: farm workload add-file examples/external/engine.sh
    """
    lab = connect(lab_folder)
    digests = {file.name: add_to_lab(lab, file) for file in files}
    if as_json:
        print_json(digests)
        return
    for name, digest in digests.items():
        click.echo(f"  {name}: {digest}")


@workload.command("add-dataset")
@click.argument("kind", type=click.Choice(["mnist", "cifar10", "text"]))
@click.argument("path", type=click.Path(path_type=Path))
@value_option(
    "--samples",
    type=click.IntRange(1, 60_000),
    default=4096,
    help="Number of samples, from the first.",
)
@value_option(
    "--text-length",
    type=click.IntRange(1, 4096),
    default=128,
    help="Bytes per sample of a text; the sweep's text_length must be the same.",
)
@lab_option
@json_option
def add_dataset(
    kind: str, path: Path, samples: int, text_length: int, lab_folder: Path, as_json: bool
) -> None:
    """Add MNIST or CIFAR-10 from a folder, or a text from a file.

    The folder must contain train-images-idx3-ubyte and train-labels-idx1-ubyte (.gz or not), or
    data_batch_1.bin to data_batch_5.bin; nothing is downloaded. Every byte of a text is a token,
    and the decoders learn to predict the next one. A sweep refers to the data set by the digest
    that is printed.

    \b
    Examples:
      farm workload add-dataset mnist ~/mnist
      farm workload add-dataset text book.txt
    """
    from workloads.dataset_files import data_file, sample_count, text_file
    from workloads.protocol.base import digest_of_bytes
    from workloads.units import count_text

    if kind == "text":
        with open_input(path) as stream:
            content = text_file(stream.read(samples * text_length + 1), text_length, samples)
    else:
        content = data_file(kind, _read_files(kind, path), samples)
    digest, count = digest_of_bytes(content), sample_count(content)
    _add(connect(lab_folder), digest, BytesIO(content))
    if as_json:
        print_json({"data": digest, "bytes": len(content), "samples": count})
        return
    chosen = f", with: {{text_length: {text_length}}}" if kind == "text" else ""
    example = {"mnist": "lenet", "text": "decoder-1m"}.get(kind)
    click.echo(f"workload: {{use: {example}, data: {digest}{chosen}}}" if example else digest)
    used = f" of {text_length} bytes, from a text of {path.stat().st_size:,}" if chosen else ""
    click.echo(f"The data set has {count_text(count, 'sample')}{used}.", err=True)


def _read_files(kind: str, folder: Path) -> dict[str, bytes]:
    """Read the published files in a folder; CIFAR-10 may have fewer than five."""
    from workloads.dataset_files import FILES

    contents: dict[str, bytes] = {}
    for name in FILES[kind]:
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
                contents[name] = file.read_bytes()
                break
    if not contents or (kind == "mnist" and len(contents) < len(FILES[kind])):
        missing = ", ".join(name for name in FILES[kind] if name not in contents)
        raise InvalidRequest(f"{folder} does not contain {missing}")
    return contents


def add_to_lab(lab: "LabConnection", file: Path) -> str:
    """Copy a file into the lab, unless the lab has it; return its digest."""
    from hashlib import file_digest

    try:
        with open_input(file) as stream:
            digest = file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            return _add(lab, digest, stream)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be copied: {error.strerror}") from error


def _add(lab: "LabConnection", digest: str, stream: BinaryIO) -> str:
    from orchestrator.app.store_files import has_file, store_file

    return digest if has_file(lab, digest) else store_file(lab, digest, stream)
