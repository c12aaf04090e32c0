"""What tests of kernels share: one device for all of them."""

import shutil

import pytest

from kernels.harness.device import POCL, Device, all_devices


@pytest.fixture(scope="session")
def device() -> Device:
    """PoCL, which comes with the test tools, but not with a linker."""
    if shutil.which("ld") is None:
        pytest.skip("PoCL builds kernels with the system's linker, and there is no 'ld' on PATH")
    return next(device for device in all_devices() if device.facts.platform == POCL)


@pytest.fixture(scope="session")
def device_number(device: Device) -> str:
    """The same one, as the command line names it: there may be others."""
    return str([each.facts for each in all_devices()].index(device.facts))
