"""The GPU, as the drivers of several families show it."""

import pytest

from agent.phone.gpu_probe import gpu_limits, parse_gpu

KGSL = "/sys/class/kgsl/kgsl-3d0"
MALI = "/sys/class/misc/mali0/device"


def test_an_adreno_is_found_in_its_own_folder() -> None:
    nodes = {
        "/sys/class/devfreq/kgsl-3d0/available_frequencies": "257000000 585000000",
        f"{KGSL}/devfreq/available_frequencies": "585000000 499200000 257000000",
        f"{KGSL}/gpu_model": "Adreno640v2",
    }
    gpu = parse_gpu(nodes)
    assert gpu is not None
    assert (gpu.name, gpu.folder) == ("Adreno640v2", f"{KGSL}/devfreq")
    assert gpu.ladder_khz == (257000, 499200, 585000)
    assert not gpu.writable


def test_a_mali_is_named_without_its_revision() -> None:
    nodes = {
        "/sys/class/devfreq/e82c0000.mali/available_frequencies": "100000000 850000000 0",
        "/sys/class/misc/mali0/device/gpuinfo": "Mali-G76 10 cores r0p0 0x72110000",
    }
    gpu = parse_gpu(nodes)
    assert gpu is not None
    assert (gpu.name, gpu.ladder_khz) == ("Mali-G76 10", (100000, 850000))


def test_without_clock_steps_there_is_no_gpu() -> None:
    assert parse_gpu({}) is None
    assert parse_gpu({"/sys/class/devfreq/x.mali/available_frequencies": "none"}) is None


def test_the_gpu_of_a_tensor_phone_has_no_devfreq_folder() -> None:
    """Google Pixel 8a, Android 16: kHz, in descending order, under names of their own."""
    nodes = {
        f"{MALI}/available_frequencies": "890000 850000 807000 723000 649000 302000 150000",
        f"{MALI}/gpuinfo": "Mali-G715 7 cores r0p0 0xB8A21000",
    }
    gpu = parse_gpu(nodes)
    assert gpu is not None
    assert (gpu.name, gpu.ladder_khz[0], gpu.ladder_khz[-1]) == ("Mali-G715 7", 150_000, 890_000)
    assert (gpu.unit_hz, gpu.clock, gpu.load_node) == (1000, "cur_freq", f"{MALI}/utilization")
    assert gpu_limits(gpu) == [f"{MALI}/scaling_min_freq", f"{MALI}/scaling_max_freq"]


@pytest.mark.parametrize(
    ("table", "unit_hz"), [("1300000 702000 303000", 1000), ("572 546 455 260", 1_000_000)]
)
def test_the_table_of_a_samsung_gpu_is_in_khz_or_in_mhz(table: str, unit_hz: int) -> None:
    gpu = parse_gpu({"/sys/kernel/gpu/gpu_freq_table": table})
    assert gpu is not None
    assert gpu.unit_hz == unit_hz
    assert gpu.ladder_khz == tuple(sorted(int(step) * unit_hz // 1000 for step in table.split()))


def test_a_devfreq_folder_may_be_in_khz() -> None:
    folder = "/sys/class/devfreq/23400000.sgpu"
    gpu = parse_gpu({f"{folder}/available_frequencies": "1300000 702000 303000"})
    assert gpu is not None
    assert (gpu.folder, gpu.unit_hz, gpu.ladder_khz) == (folder, 1000, (303000, 702000, 1300000))


def test_the_bus_of_a_gpu_is_not_a_gpu() -> None:
    """Its steps are in MB/s; kernels 3.10 to 4.14 of Qualcomm list it beside the GPU."""
    nodes = {
        "/sys/class/devfreq/qcom,gpubw.53/available_frequencies": "1525 3051 4173 5195 7759",
        "/sys/class/devfreq/qcom,kgsl-busmon/available_frequencies": "133 320 510 600",
    }
    assert parse_gpu(nodes) is None
