"""Which runner and OpenCL sources a phone gets, identified by digest, never by name or date."""

import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from workloads.protocol.base import digest_of, digest_of_bytes

PLACEHOLDER = "placeholder.sh"
ABI_MARK = b"@ABI@"


@dataclass(frozen=True)
class RunnerBuild:
    """One runner binary, and the build to try where this one does not start."""

    abi: str
    digest: str
    content: bytes
    fallback: "RunnerBuild | None" = None

    @property
    def file_name(self) -> str:
        """Its file name on the phone."""
        return f"runner-{self.digest[:12]}"

    def with_digest(self, digest: str) -> "RunnerBuild":
        """Return this build or the fallback that has this digest; this build if none has."""
        build: RunnerBuild | None = self
        while build is not None and build.digest != digest:
            build = build.fallback
        return build or self


@dataclass(frozen=True)
class KernelSources:
    """The OpenCL sources that a phone gets, in a folder named after their digest."""

    digest: str
    files: Mapping[str, bytes]

    @property
    def folder_name(self) -> str:
        """The name of the folder on the phone."""
        return f"kernels-{self.digest[:12]}"


@cache
def kernel_sources() -> KernelSources:
    """Read all files of kernels/opencl."""
    folder = importlib.resources.files("kernels") / "opencl"
    sources = [file for file in folder.iterdir() if file.name.endswith(".cl")]
    files = {file.name: file.read_bytes() for file in sources}
    digests = {name: digest_of_bytes(files[name]) for name in sorted(files)}
    return KernelSources(digest_of(digests), files)


@cache
def runner_for(abi: str) -> RunnerBuild:
    """Return the runner of an ABI with its fallbacks, or a script that reports that none exists."""
    plain = "".join(letter for letter in abi if letter.isalnum() or letter in "-_")[:32]
    package = importlib.resources.files("kernels")
    entries = json.loads((package / "bin" / "manifest.json").read_text())["binaries"]
    build: RunnerBuild | None = None
    for entry in reversed([entry for entry in entries if entry["abi"] == plain]):
        content = (package / "bin" / entry["file"]).read_bytes()
        build = RunnerBuild(plain, digest_of_bytes(content), content, build)
    if build is not None:
        return build
    content = (package / "runner" / PLACEHOLDER).read_bytes().replace(ABI_MARK, plain.encode())
    return RunnerBuild(plain, digest_of_bytes(content), content)
