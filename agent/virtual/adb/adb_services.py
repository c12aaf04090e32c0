"""The ADB services of a phone, by name; unknown names are refused."""

from agent.virtual.adb.adb_connection import Service
from agent.virtual.adb.adb_stream import AdbStream
from agent.virtual.adb.shell_service import ShellRequest, serve_shell
from agent.virtual.adb.sync_service import serve_sync
from agent.virtual.native.native_shell import serve_native_shell
from agent.virtual.virtual_phone import VirtualPhone

FEATURES = ("shell_v2", "cmd", "stat_v2", "ls_v2", "fixed_push_mkdir", "sendrecv_v2")


def identity_banner(phone: VirtualPhone) -> str:
    """Return the banner that identifies the phone in CNXN."""
    names = ("ro.product.name", "ro.product.model", "ro.product.device")
    facts = "".join(f"{name}={phone.properties[name]};" for name in names)
    return f"device::{facts}features={','.join(FEATURES)}"


def find_service(phone: VirtualPhone, name: str) -> Service | None:
    """Return the service behind a name, or None to refuse it."""
    prefix, _, argument = name.partition(":")
    service_kind, *options = prefix.split(",")

    async def shell(stream: AdbStream) -> None:
        # exec:sh and shell:sh read their commands from stdin, like a shell without a command.
        command = "" if argument.strip() == "sh" else argument
        if phone.native is not None:
            await serve_native_shell(phone, phone.native, stream, command, "v2" in options)
            return
        # Shell v2 asks for a terminal with `pty`; v1 cannot ask and gets one if there is no
        # command.
        wants_terminal = "pty" in options or (
            not options and service_kind == "shell" and not argument
        )
        is_interactive = wants_terminal and not command
        await serve_shell(phone, stream, ShellRequest(command, "v2" in options, is_interactive))

    async def sync(stream: AdbStream) -> None:
        await serve_sync(phone, stream)

    async def reboot(stream: AdbStream) -> None:
        phone.reboot(argument)

    async def root(stream: AdbStream) -> None:
        await stream.write(phone.restart_adbd(as_root=service_kind == "root").encode())

    services: dict[str, Service] = {
        "shell": shell,
        "exec": shell,
        "sync": sync,
        "reboot": reboot,
        "root": root,
        "unroot": root,
    }
    return services.get(service_kind)
