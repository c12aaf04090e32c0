"""Commands for the system: id, properties and services."""

from agent.virtual.commands.command_options import split_options
from agent.virtual.commands.shell_builtins import print_paths
from agent.virtual.event_journal import JournalEvent
from agent.virtual.shell.command_call import CommandCall, CommandFunction, by_name

_GROUPS = "2000(shell),1004(input),1007(log),1015(sdcard_rw),3001(net_bt_admin),3009(readproc)"


def id_command(call: CommandCall) -> int:
    options, _ = split_options(call.argv[1:])
    is_root = call.uid == 0
    if "u" in options or "g" in options:
        name = "root" if is_root else "shell"
        call.print(f"{name if 'n' in options else call.uid}\n")
    elif is_root:
        call.print("uid=0(root) gid=0(root) groups=0(root) context=u:r:magisk:s0\n")
    else:
        call.print(f"uid=2000(shell) gid=2000(shell) groups={_GROUPS} context=u:r:shell:s0\n")
    return 0


def getprop(call: CommandCall) -> int:
    properties = call.phone.properties
    if "sys.siop.level" in properties:
        state = max((cluster.throttle_state for cluster in call.phone.soc.clusters), default=0)
        properties["sys.siop.level"] = str(min(state, 3)) if state else "-3"
    if len(call.argv) > 1:
        default = call.argv[2] if len(call.argv) > 2 else ""
        call.print(properties.get(call.argv[1], default) + "\n")
    else:
        call.print("".join(f"[{key}]: [{properties[key]}]\n" for key in sorted(properties)))
    return 0


def setprop(call: CommandCall) -> int:
    if len(call.argv) != 3:
        return call.fail("Needs 2 arguments")
    name, value = call.argv[1:]
    free = ("debug.", "log.", "persist.log.", "security.perf_harden")
    is_protected = not name.startswith(free)
    if name.startswith("ro.") or (is_protected and call.uid != 0):
        return call.fail(f"failed to set property '{name}' to '{value}'")
    call.phone.journal.write(JournalEvent.PROPERTY_WRITE, name=name, new=value)
    if name in ("ctl.stop", "ctl.start"):
        call.phone.set_service(value, running=name == "ctl.start")
    else:
        call.phone.properties[name] = value
    return 0


def stop(call: CommandCall) -> int:
    return _set_services(call, running=False)


def start(call: CommandCall) -> int:
    return _set_services(call, running=True)


def _set_services(call: CommandCall, running: bool) -> int:
    if call.uid != 0:
        return call.fail("must be root")
    for name in call.argv[1:]:
        call.phone.set_service(name, running)
    return 0


def do_nothing(call: CommandCall) -> int:
    """Succeed without effect."""
    return 0


SYSTEM_COMMANDS: dict[str, CommandFunction] = {
    **by_name(getprop, setprop, start, stop),
    "id": id_command,
    "fsync": do_nothing,
    "sync": do_nothing,
    "which": print_paths,
}
