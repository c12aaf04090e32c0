"""OpenCL kernels on a phone: pushed once by digest, beside the runner that builds them there."""

from agent.phone.phone import HOME, Phone
from kernels.manifest import KernelShelf
from workloads.noun import digest_of_bytes


def install_kernels(phone: Phone, shelf: KernelShelf) -> str:
    """Have these very files on the phone and answer their folder; pushed where one differs."""
    folder = f"{HOME}/{shelf.folder_name}"
    paths = {f"{folder}/{name}": content for name, content in shelf.files.items()}
    there = phone.shell(["sha256sum", *paths]).text
    known = {line.split(" ")[0] for line in there.splitlines()}
    missing = [path for path, content in paths.items() if digest_of_bytes(content) not in known]
    if missing:
        phone.shell(["mkdir", "-p", folder])
    for path in missing:
        phone.push(paths[path], path)
    return folder
