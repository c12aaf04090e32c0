"""Which runner goes on which phone. Binaries are known by digest, never by name or date."""

import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from workloads.noun import digest_of, digest_of_bytes

PLACEHOLDER = "placeholder.sh"
ABI_MARK = b"@ABI@"


@dataclass(frozen=True)
class RunnerBuild:
    """One runner: what is pushed, under which digest, and what to try where it does not start."""

    abi: str
    digest: str
    content: bytes
    spare: "RunnerBuild | None" = None

    @property
    def file_name(self) -> str:
        """Its name on the phone."""
        return f"runner-{self.digest[:12]}"

    def which(self, digest: str) -> "RunnerBuild":
        """The one of this and its spares that has this digest; this one when none has."""
        build: RunnerBuild | None = self
        while build is not None and build.digest != digest:
            build = build.spare
        return build or self


@dataclass(frozen=True)
class KernelShelf:
    """The OpenCL kernels that a phone gets: a folder that is named after what is in it."""

    digest: str
    files: Mapping[str, bytes]

    @property
    def folder_name(self) -> str:
        """Its name on the phone."""
        return f"kernels-{self.digest[:12]}"


@cache
def kernel_shelf() -> KernelShelf:
    """Every file of kernels/opencl."""
    shelf = importlib.resources.files("kernels") / "opencl"
    files = {each.name: each.read_bytes() for each in shelf.iterdir() if each.name.endswith(".cl")}
    digests = {name: digest_of_bytes(files[name]) for name in sorted(files)}
    return KernelShelf(digest_of(digests), files)


@cache
def runner_for(abi: str) -> RunnerBuild:
    """The runner of an ABI, with its spares; where none ships, a script that says so."""
    plain = "".join(letter for letter in abi if letter.isalnum() or letter in "-_")[:32]
    shelf = importlib.resources.files("kernels")
    listed = json.loads((shelf / "bin" / "manifest.json").read_text())["binaries"]
    spare: RunnerBuild | None = None
    for entry in reversed([entry for entry in listed if entry["abi"] == plain]):
        content = (shelf / "bin" / entry["file"]).read_bytes()
        spare = RunnerBuild(plain, digest_of_bytes(content), content, spare)
    if spare is not None:
        return spare
    content = (shelf / "runner" / PLACEHOLDER).read_bytes().replace(ABI_MARK, plain.encode())
    return RunnerBuild(plain, digest_of_bytes(content), content)
