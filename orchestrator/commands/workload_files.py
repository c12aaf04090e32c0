"""`farm workload new` and `add`: own models, programs of other engines, files and data sets."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from orchestrator.commands.common import connect, json_option, lab_option, print_json, print_table
from workloads.cli_options import value_option
from workloads.command_output import say
from workloads.input_file import open_input
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.app.external_engines import EngineFiles
    from orchestrator.app.lab_connection import LabConnection

DATA_SETS = ("mnist", "cifar10", "text")


def print_engines(as_json: bool) -> None:
    """Print the engines whose manifests are included."""
    from orchestrator.app.external_engines import list_engines

    rows = [
        (
            *(name, "training" if engine.manifest.training else "inference"),
            *(engine.manifest.text, ", ".join(engine.needed)),
        )
        for name, engine in list_engines().items()
    ]
    keys = ("engine", "measures", "text", "files")
    if as_json:
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    print_table(("ENGINE", "MEASURES", "WHAT", "YOUR FILES"), rows)


@click.command()
@click.argument("name")
@click.option("--external", is_flag=True, help="A program of another engine instead of a model.")
@click.option(
    "--engine", default="", help="The same, for this engine: see 'workload list --engines'."
)
@click.option(
    "--python",
    default="python3",
    show_default=True,
    help="Python on the phone, for a program or an engine in Python; it must have the packages.",
)
@click.option(
    "--program",
    "programs",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Program that runs on the phone, or a file that the engine needs, in the order "
    "of 'workload list --engines'. Default: write a program that shows what is expected.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="Folder to write to. Default: this one.",
)
def new(
    name: str, external: bool, engine: str, python: str, programs: tuple[Path, ...], folder: Path
) -> None:
    """Write the commented file of a model or program NAME.

    The file of a model and its table line are in workloads/models/ of this installation. The new
    workload can be used at once; a running lab must be restarted to use it. The manifest NAME.yaml
    of a program is named in a sweep.

    \b
    Examples:
      farm workload new my-net
      farm workload new my-engine --external
      farm workload new llama --program llama-bench
      farm workload new mnn --engine mnn --python /opt/mnn/bin/python
    """
    from orchestrator.commands.start_files import check_name
    from workloads.catalogue import CATALOGUE

    if check_name(name) in CATALOGUE:
        raise InvalidRequest(f"there is a workload '{name}' already; choose another name")
    if external or engine or programs:
        _write_program(name, engine, python, programs, folder)
    else:
        _write_model(name)


def _write_model(name: str) -> None:
    import workloads.models
    from orchestrator.commands.start_files import write_model

    models = Path(workloads.models.__path__[0])
    click.echo(str(write_model(name, models)))
    click.echo(f"Its line is in {models / 'own_models.py'}.", err=True)
    say(f"See its cost and memory with: farm workload show {name}", err=True)


def _write_program(
    name: str, engine: str, python: str, programs: tuple[Path, ...], folder: Path
) -> None:
    from orchestrator.commands.start_files import write_engine, write_manifest

    if engine:
        written = write_engine(name, folder, _find_engine(engine), python, programs)
    elif len(programs) > 1:
        raise click.UsageError("only an --engine takes several programs")
    else:
        written = write_manifest(name, folder, next(iter(programs), None), python)
    for file in written:
        click.echo(str(file))
    used = " ".join(str(file) for file in (*written[1:], *programs))
    say(f"Copy the program into the lab with: farm workload add {used}", err=True)
    click.echo(f'Name it in a sweep with: workload: "external:{written[0].name}"', err=True)


def _find_engine(name: str) -> "EngineFiles":
    from orchestrator.app.external_engines import list_engines

    engines = list_engines()
    if name not in engines:
        known = ", ".join(engines)
        raise InvalidRequest(f"unknown engine '{safe_text(name, 60)}'; use {known}")
    return engines[name]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--dataset",
    type=click.Choice(DATA_SETS),
    help="Add a data set: MNIST or CIFAR-10 from a folder, or a text from a file.",
)
@value_option(
    "--samples",
    type=click.IntRange(1, 60_000),
    default=4096,
    help="Number of samples of a data set, from the first.",
)
@value_option(
    "--text-length",
    type=click.IntRange(1, 4096),
    default=128,
    help="Bytes per sample of a text; the sweep's text_length must be the same.",
)
@lab_option
@json_option
def add(
    files: tuple[Path, ...],
    dataset: str | None,
    samples: int,
    text_length: int,
    lab_folder: Path,
    as_json: bool,
) -> None:
    """Copy FILES of a program, or a data set, into the lab.

    Prints NAME: DIGEST of each file, as a manifest lists them. A host with its own lab folder
    needs the files there too.

    The folder of a data set must contain train-images-idx3-ubyte and train-labels-idx1-ubyte (.gz
    or not), or data_batch_1.bin to data_batch_5.bin; nothing is downloaded. Every byte of a text is
    a token, and the decoders learn to predict the next one. A sweep refers to the data set by the
    digest that is printed.

    \b
    Examples:
      farm workload add examples/external/engine.sh
      farm workload add --dataset mnist ~/mnist
      farm workload add --dataset text book.txt
    """
    lab = connect(lab_folder)
    if dataset is not None:
        if len(files) != 1:
            raise click.UsageError("--dataset takes one folder or file")
        _add_dataset(lab, dataset, files[0], samples, text_length, as_json)
        return
    digests = {file.name: add_to_lab(lab, file) for file in files}
    if as_json:
        print_json(digests)
        return
    for name, digest in digests.items():
        click.echo(f"  {name}: {digest}")


def _add_dataset(
    lab: "LabConnection", kind: str, path: Path, samples: int, text_length: int, as_json: bool
) -> None:
    from workloads.dataset_files import data_file, sample_count, text_file
    from workloads.protocol.base import digest_of_bytes
    from workloads.units import count_text

    if kind == "text":
        with open_input(path) as stream:
            content = text_file(stream.read(samples * text_length + 1), text_length, samples)
    else:
        content = data_file(kind, _read_files(kind, path), samples)
    digest, count = digest_of_bytes(content), sample_count(content)
    _add(lab, digest, BytesIO(content))
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
