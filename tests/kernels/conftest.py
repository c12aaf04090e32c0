"""Fixtures for the tests of the OpenCL kernels: one shared OpenCL device."""

import pytest

from kernels.harness.opencl_device import POCL, Device, all_devices
from kernels.pocl import linker_folder


@pytest.fixture(scope="session")
def device() -> Device:
    """Return PoCL, which is installed with the test tools, as is a linker for it."""
    if linker_folder() is None:
        pytest.skip("PoCL builds kernels with 'ld', and neither the system nor ziglang has one")
    return next(device for device in all_devices() if device.facts.platform == POCL)


@pytest.fixture(scope="session")
def device_number(device: Device) -> str:
    """Return its number for the command line, since there may be other devices."""
    return str([each.facts for each in all_devices()].index(device.facts))
