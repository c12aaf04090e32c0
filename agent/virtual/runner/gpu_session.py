"""Opens the OpenCL device for a plan: checks what the contract lists, in the order of the runner.

Nothing is built or copied; how long that would take follows from the profile.
"""

from dataclasses import dataclass

from agent.virtual.files.file_tree import FileTree, error_text
from agent.virtual.opencl_driver import OpenCLDriver, device_names
from agent.virtual.physics.gpu_model import GpuSettings
from agent.virtual.profiles import GpuProfile, OpenCLProfile
from agent.virtual.runner.plan_header import PlanHeader
from agent.virtual.runner.product_programs import PRODUCT_KERNELS, product_programs
from agent.virtual.runner.runner_contract import RunnerExit, RunnerFailure, RunnerRecord

_MIB = 1 << 20
_TUNED_MAGIC = "farmhand-tuned 2"
_BUFFERS = ("parameter", "gradient", "state", "activation", "input")
_TRANSPOSITIONS = 3  # of a product, in training; each is a separate program


@dataclass(frozen=True, slots=True)
class OpenCLOptions:
    """The OPENCL options of `run`."""

    kernels: str = ""  # empty: the folder of the plan
    tuned: str = ""
    device: int = 0
    kernel: str = "tuned"
    feed: str = "resident"

    def settings(self, plan: PlanHeader) -> GpuSettings:
        return GpuSettings(self.kernel, self.feed, plan.batch_bytes)


@dataclass(frozen=True, slots=True)
class GpuSession:
    """A device that is ready to run a plan."""

    device: OpenCLProfile
    settings: GpuSettings
    build_s: float
    copy_s: float
    programs: int
    tuned: int
    products: tuple[RunnerRecord, ...]

    def records(self) -> tuple[RunnerRecord, ...]:
        device: RunnerRecord = {
            "line": "device",
            **device_names(self.device),
            "build_ns": round(self.build_s * 1e9),
            "copy_ns": round(self.copy_s * 1e9),
            "programs": self.programs,
            "tuned": self.tuned,
            "recorded": 0,
        }
        return (device, *self.products)


class SessionOpener:
    """What a session needs of its phone."""

    def __init__(self, driver: OpenCLDriver, gpu: GpuProfile | None, tree: FileTree) -> None:
        self._driver = driver
        self._gpu = gpu
        self._tree = tree

    def open(
        self, plan: PlanHeader, options: OpenCLOptions, uid: int, plan_folder: str
    ) -> GpuSession:
        """Open the device, or fail as the runner would."""
        device = self._find_device(options.device)
        records = self._tuned_records(device, options.tuned, uid) if options.tuned else []
        self._check_memory(device, plan, options.feed)
        kernels = options.kernels or plan_folder
        self._check_kernels(kernels, uid)
        products = product_programs(self._tree, kernels, uid, plan.ops, options.kernel, records)
        if self._driver.build_error:
            text = f"sgemm_common.cl does not build for {device.device}: {self._driver.build_error}"
            raise RunnerFailure(RunnerExit.DEVICE, text)
        kinds = [op.kind for op in plan.ops]
        programs = len(set(kinds)) + (_TRANSPOSITIONS - 1) * ("matmul" in kinds)
        copied = sum(plan.memory[kind] for kind in ("parameter", "state"))
        copied += plan.memory["dataset"] if options.feed == "preloaded" else 0
        assert self._gpu is not None
        uses_records = records and options.kernel == "tuned"
        return GpuSession(
            device,
            options.settings(plan),
            build_s=programs * device.build_ms / 1e3,
            copy_s=copied / (self._gpu.copy_gbs * 1e9),
            programs=programs,
            tuned=kinds.count("matmul") if uses_records else 0,
            products=tuple(products),
        )

    def _find_device(self, number: int) -> OpenCLProfile:
        if not self._driver.has_library:
            text = "no OpenCL library was found; use the CPU backend"
            raise RunnerFailure(RunnerExit.UNSUPPORTED, text)
        devices = self._driver.devices
        if number >= len(devices):
            text = f"there is no OpenCL device {number}; {len(devices)} devices were found"
            raise RunnerFailure(RunnerExit.UNSUPPORTED, text)
        return devices[number]

    def _tuned_records(self, device: OpenCLProfile, path: str, uid: int) -> list[list[str]]:
        """Check a tuning file; return the words of its products."""

        def refuse(line: int, problem: str) -> RunnerFailure:
            text = f"{path}, line {line}: {problem}; tune again"
            return RunnerFailure(RunnerExit.UNSUPPORTED, text)

        try:
            text = self._tree.read(path, uid).decode("utf-8", "replace")
        except OSError:
            text = ""
        if not text.endswith("\n"):
            raise refuse(1, "the tuning file is missing or incomplete")
        lines = text.splitlines()
        if lines[0] != _TUNED_MAGIC:
            raise refuse(1, "this is not a tuning file")
        named = f"device {device.device}\t{device.version}\t{device.driver}"
        if len(lines) < 2 or lines[1] != named:
            raise refuse(2, "the file is for another device or driver")
        records = [(n, line.split(" ")) for n, line in enumerate(lines, 1) if line[:6] == "sgemm "]
        for number, words in records:
            is_record = len(words) > 6 and all(word.isdigit() for word in words[1:6])
            if not is_record or words[6] not in PRODUCT_KERNELS:
                raise refuse(number, "this is not a record of a matrix product")
        return [words[1:] for _, words in records]

    def _check_memory(self, device: OpenCLProfile, plan: PlanHeader, feed: str) -> None:
        buffers = [plan.memory[kind] for kind in _BUFFERS]
        buffers += [plan.memory["dataset"]] if feed == "preloaded" else []
        largest, limit = max(buffers), self._driver.max_alloc_bytes
        if largest > limit or sum(buffers) > device.global_mb * _MIB:
            text = (
                f"{device.device} cannot allocate {largest // 1024} kB at once (at most "
                f"{limit // 1024} kB), or {sum(buffers) // 1024} kB in total; use a smaller batch"
            )
            raise RunnerFailure(RunnerExit.OUT_OF_MEMORY, text)

    def _check_kernels(self, folder: str, uid: int) -> None:
        try:
            names = self._tree.names(folder, uid)
            problem = "" if any(name.endswith(".cl") for name in names) else "no kernel is there"
        except OSError as error:
            problem = error_text(error)
        if problem:
            text = f"cannot read the kernels in {folder}: {problem}"
            raise RunnerFailure(RunnerExit.BAD_PLAN, text)
