"""`farm workload`: what can be run, and the files that foreign programs bring."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    print_json,
    print_table,
    read_lab,
)
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

if TYPE_CHECKING:
    from workloads.workload import Workload


@click.group()
def workload() -> None:
    """List what can be run, and keep the files of foreign programs."""


@workload.command("list")
@json_option
def list_workloads(as_json: bool) -> None:
    """List every workload, study by study."""
    from workloads.catalogue import CATALOGUE

    if as_json:
        print_json(
            {
                name: {
                    "text": item.text,
                    "study": item.study.name,
                    "parameters": {each.name: each.default for each in item.parameters},
                }
                for name, item in CATALOGUE.items()
            }
        )
    elif sys.stdout.isatty():
        for line in _shelf():
            click.echo(line)
    else:
        rows = [
            (name, item.study.name, _choices(item), item.text) for name, item in CATALOGUE.items()
        ]
        print_table(("WORKLOAD", "STUDY", "PARAMETERS", "WHAT IT DOES"), rows)


def _shelf() -> Iterator[str]:
    """Every workload, study by study; inference is said once."""
    from workloads.catalogue import CATALOGUE
    from workloads.workload_table import INFERENCE_SUFFIX, STUDIES

    for study in STUDIES:
        yield f"{study.name}: {study.text}"
        for name, item in CATALOGUE.items():
            if item.study == study and not name.endswith(INFERENCE_SUFFIX):
                yield f"  {name:<17} {item.text}"
        yield ""
    yield f"Whatever trains has a twin that only uses the model: resnet50{INFERENCE_SUFFIX}."
    yield "'farm workload show NAME' says what may be chosen, what it costs, its sources."


def _choices(item: "Workload") -> str:
    return ", ".join(f"{each.name}={each.default}" for each in item.parameters) or "-"


@workload.command()
@click.argument("name")
@click.option("--batch-size", type=int, help="Short for --with batch_size=N.")
@click.option("--with", "given", multiple=True, metavar="NAME=N", help="Choose a parameter.")
@json_option
def show(name: str, batch_size: int | None, given: tuple[str, ...], as_json: bool) -> None:
    """Show what a workload is, costs and needs: arithmetic, memory, optimizer, sources."""
    from orchestrator.commands.workload_view import card_of, shown
    from workloads.catalogue import bind

    chosen = dict(_chosen(each) for each in given)
    if batch_size is not None:
        chosen["batch_size"] = batch_size
    case = bind(name, chosen)
    if as_json:
        print_json(card_of(case))
        return
    for line in shown(case):
        click.echo(line)


@workload.command()
@click.argument("name")
@click.option("--memory", required=True, metavar="BYTES", help="The budget: 512MB, 1GB, 2GiB.")
@click.option("--with", "given", multiple=True, metavar="NAME=N", help="Choose a parameter.")
@json_option
def fit(name: str, memory: str, given: tuple[str, ...], as_json: bool) -> None:
    """Find the largest batch of a workload that fits into so much memory."""
    from workloads.catalogue import CATALOGUE, bind
    from workloads.memory_budget import BATCH, largest_batch, needed_bytes
    from workloads.units import format_bytes, parse_bytes

    try:
        budget = parse_bytes(memory)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
    chosen = dict(_chosen(each) for each in given)
    batch = largest_batch(name, budget, chosen)
    smallest = next(each.min for each in CATALOGUE[name].parameters if each.name == BATCH)
    tried = smallest if batch is None else batch
    needed = needed_bytes(bind(name, {**chosen, BATCH: tried}))
    if as_json:
        print_json(
            {"workload": name, "budget_bytes": budget, "batch_size": batch, "needed_bytes": needed}
        )
    elif batch is None:
        click.echo(
            f"{name} does not fit into {format_bytes(budget)}: "
            f"a batch of {tried} takes {format_bytes(needed)}."
        )
    else:
        click.echo(
            f"{name} fits into {format_bytes(budget)} with a batch of {batch}, "
            f"which takes {format_bytes(needed)}."
        )


def _chosen(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not value.isdecimal():
        raise InvalidRequest(
            f"'{safe_text(text, 60)}' chooses nothing; write NAME=N, N being a number"
        )
    return name, int(value)


@workload.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@lab_option
@json_option
def keep(files: tuple[Path, ...], lab_folder: Path, as_json: bool) -> None:
    """Copy FILES into the lab by digest, for the agents that use its folder.

    Prints each as a manifest names it. A host with a lab folder of its own needs them there too.
    """
    shelf = read_lab(lab_folder).files_folder
    kept = {file.name: keep_file(file, shelf) for file in files}
    if as_json:
        print_json(kept)
        return
    for name, digest in kept.items():
        click.echo(f"  {name}: {digest}")


@workload.command()
@click.argument("kind", type=click.Choice(["mnist", "cifar10"]))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--samples",
    type=click.IntRange(1, 60_000),
    default=4096,
    show_default=True,
    help="How many of its first samples to take.",
)
@lab_option
@json_option
def data(kind: str, folder: Path, samples: int, lab_folder: Path, as_json: bool) -> None:
    """Make a data file of MNIST or CIFAR-10 from the files in FOLDER, and keep it in the lab.

    Nothing is downloaded: FOLDER holds train-images-idx3-ubyte and train-labels-idx1-ubyte (.gz or
    not), or data_batch_1.bin to data_batch_5.bin. A sweep names the digest that is printed.
    """
    from workloads.dataset_files import data_file
    from workloads.protocol.base import digest_of_bytes

    content = data_file(kind, _read_set(kind, folder), samples)
    digest = digest_of_bytes(content)
    shelf = read_lab(lab_folder).files_folder
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        part = shelf / f"{digest}.part"
        part.write_bytes(content)
        part.replace(shelf / digest)
    except OSError as error:
        raise InvalidRequest(f"{shelf} cannot be written: {error.strerror}") from error
    if as_json:
        print_json({"data": digest, "bytes": len(content)})
        return
    click.echo(f"workload: {{use: lenet, data: {digest}}}" if kind == "mnist" else digest)


def _read_set(kind: str, folder: Path) -> dict[str, bytes]:
    """The published files that a folder holds; CIFAR-10 may come with fewer than five."""
    from workloads.dataset_files import FILES

    found: dict[str, bytes] = {}
    for name in FILES[kind]:
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
                found[name] = file.read_bytes()
                break
    if not found or (kind == "mnist" and len(found) < len(FILES[kind])):
        missing = ", ".join(name for name in FILES[kind] if name not in found)
        raise InvalidRequest(f"{folder} has no {missing}")
    return found


def keep_file(file: Path, shelf: Path) -> str:
    """Copy a file whole or not at all, and answer its digest."""
    import shutil
    from hashlib import file_digest

    try:
        shelf.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as stream:
            digest = file_digest(stream, "sha256").hexdigest()
        if not (shelf / digest).exists():
            part = shelf / f"{digest}.part"
            shutil.copyfile(file, part)
            part.replace(shelf / digest)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be kept: {error.strerror}") from error
    return digest
