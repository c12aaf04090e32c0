"""The GPU, as the drivers of two families show it."""

from agent.phone.gpu_probe import parse_gpu

KGSL = "/sys/class/kgsl/kgsl-3d0"


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
