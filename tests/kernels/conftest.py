"""What tests of kernels share: one device for all of them."""

import shutil

import pytest

from kernels.harness.device import POCL, Device, choose_device


@pytest.fixture(scope="session")
def device() -> Device:
    """PoCL, which comes with the test tools, but not with a linker."""
    if shutil.which("ld") is None:
        pytest.skip("PoCL builds kernels with the system's linker, and there is no 'ld' on PATH")
    return choose_device(POCL)
