"""Install the OpenCL kernels on a phone, beside the runner that builds them there."""

from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME
from kernels.runner_builds import KernelSources
from workloads.protocol.base import digest_of_bytes


def install_kernels(phone: Phone, sources: KernelSources) -> str:
    """Push the source files that differ, and return their folder on the phone."""
    folder = f"{HOME}/{sources.folder_name}"
    contents = {f"{folder}/{name}": content for name, content in sources.files.items()}
    installed = phone.shell_batch([phone.digest_command(*contents)])[0]
    missing = [
        path
        for path, content in contents.items()
        if not phone.has_printed_digest(installed, digest_of_bytes(content), content.__bytes__)
    ]
    if missing:
        phone.shell(["mkdir", "-p", folder])
    for path in missing:
        phone.push(contents[path], path)
    return folder
