"""Which runner goes on which phone. Binaries are known by digest, never by name or date."""

import importlib.resources
from dataclasses import dataclass

from workloads.noun import digest_of_bytes

PLACEHOLDER = "placeholder.sh"
ABI_MARK = b"@ABI@"


@dataclass(frozen=True)
class RunnerBuild:
    """One runner: what is pushed, and the digest that it is pushed under."""

    abi: str
    digest: str
    content: bytes

    @property
    def file_name(self) -> str:
        """Its name on the phone."""
        return f"runner-{self.digest[:12]}"


def runner_for(abi: str) -> RunnerBuild:
    """The runner of an ABI; where no binary ships yet, a script that says so by the contract."""
    shelf = importlib.resources.files("kernels") / "runner"
    plain = "".join(letter for letter in abi if letter.isalnum() or letter in "-_")[:32]
    content = (shelf / PLACEHOLDER).read_bytes().replace(ABI_MARK, plain.encode())
    return RunnerBuild(abi=plain, digest=digest_of_bytes(content), content=content)
