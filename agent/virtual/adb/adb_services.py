"""Service names to services; a name that is not here is refused."""

from agent.virtual.adb.connection import Service
from agent.virtual.adb.reverse import Reverses
from agent.virtual.adb.shell_service import ShellRequest, serve_shell
from agent.virtual.adb.stream import AdbStream
from agent.virtual.adb.sync import serve_sync
from agent.virtual.native.shell import serve_native_shell
from agent.virtual.phone import Phone

_SOCKETS = ("tcp", "local", "localabstract", "localfilesystem", "localreserved")
FEATURES = ("shell_v2", "cmd", "stat_v2", "ls_v2", "fixed_push_mkdir", "sendrecv_v2")


def banner(phone: Phone) -> str:
    """How the phone introduces itself."""
    names = ("ro.product.name", "ro.product.model", "ro.product.device")
    facts = "".join(f"{name}={phone.properties[name]};" for name in names)
    return f"device::{facts}features={','.join(FEATURES)}"


def find_service(phone: Phone, name: str, reverses: Reverses) -> Service | None:
    """The service behind a name, or None to refuse it."""
    kind, _, argument = name.partition(":")
    flavour, *options = kind.split(",")

    async def shell(stream: AdbStream) -> None:
        # exec:sh and shell:sh are shells that read their commands, as no command at all is.
        command = "" if argument.strip() == "sh" else argument
        if phone.native is not None:
            await serve_native_shell(phone, phone.native, stream, command, "v2" in options)
            return
        # A person gets a terminal; v1 has no way to ask for one and gets it without a command.
        asked = "pty" in options or (not options and flavour == "shell" and not argument)
        terminal = asked and not command
        await serve_shell(phone, stream, ShellRequest(command, "v2" in options, terminal))

    async def sync(stream: AdbStream) -> None:
        await serve_sync(phone, stream)

    async def reboot(stream: AdbStream) -> None:
        phone.reboot(argument)

    async def root(stream: AdbStream) -> None:
        await stream.write(phone.restart_adbd(as_root=flavour == "root").encode())

    async def reverse(stream: AdbStream) -> None:
        await stream.write(reverses.answer(argument))

    # A forwarded port leads to whoever listens inside the phone.
    listener = phone.network.find(name)
    if flavour in _SOCKETS and listener is not None:
        return listener
    services: dict[str, Service] = {
        "shell": shell,
        "exec": shell,
        "sync": sync,
        "reboot": reboot,
        "root": root,
        "unroot": root,
        "reverse": reverse,
    }
    return services.get(flavour)
