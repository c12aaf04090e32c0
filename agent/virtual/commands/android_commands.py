"""Commands of the Android framework: settings, cmd, pm, dumpsys and lshal."""

from collections.abc import Awaitable

from agent.virtual.commands.dumpsys import dumpsys
from agent.virtual.commands.power_stats_dump import lshal
from agent.virtual.event_journal import JournalEvent
from agent.virtual.shell.command_call import CommandCall, CommandFunction, by_name, encode

_NAMESPACES = ("global", "system", "secure")
_DENIED = "java.lang.SecurityException: Permission denial: {} requires:android.permission.{}"


def settings(call: CommandCall) -> int:
    words = call.argv[1:]
    if words[:1] == ["--user"]:
        words = words[2:]
    if len(words) < 2 or words[1] not in _NAMESPACES:
        return call.fail("usage: settings get|put|delete|list global|system|secure NAME", 255)
    verb, namespace, rest = words[0], call.phone.settings[words[1]], words[2:]
    match verb, rest:
        case "put" | "delete", _ if call.phone.refuses_adb and call.uid != 0:
            return call.fail(_DENIED.format("writing to settings", "WRITE_SECURE_SETTINGS"), 255)
        case "get", [name, *_]:
            call.print(namespace.get(name, "null") + "\n")
        case "put", [name, value, *_]:
            call.phone.journal.write(
                JournalEvent.SETTING_WRITE,
                namespace=words[1],
                name=name,
                old=namespace.get(name),
                new=value,
            )
            namespace[name] = value
        case "delete", [name, *_]:
            removed = namespace.pop(name, None)
            call.phone.journal.write(
                JournalEvent.SETTING_WRITE, namespace=words[1], name=name, old=removed, new=None
            )
            call.print(f"Deleted {int(removed is not None)} rows\n")
        case "list", _:
            call.print("".join(f"{name}={namespace[name]}\n" for name in sorted(namespace)))
        case _:
            return call.fail(f"Invalid command: {verb}", 255)
    return 0


def cmd(call: CommandCall) -> "int | Awaitable[int]":
    match call.argv[1:]:
        case ["settings", *rest]:
            return settings(
                CommandCall(["settings", *rest], call.shell, call.process, call.streams)
            )
        case ["package", *rest]:
            return pm(CommandCall(["pm", *rest], call.shell, call.process, call.streams))
        case ["connectivity", "airplane-mode", _] if call.phone.refuses_adb and call.uid != 0:
            return call.fail(_DENIED.format("airplane mode", "NETWORK_SETTINGS"), 255)
        case ["connectivity", "airplane-mode", state]:
            call.phone.settings["global"]["airplane_mode_on"] = str(int(state == "enable"))
        case ["power", *rest]:
            return power(CommandCall(["power", *rest], call.shell, call.process, call.streams))
        case ["netpolicy", "get", "restrict-background"]:
            state = "enabled" if call.phone.framework_modes["data_saver"] else "disabled"
            call.print(f"Restrict background status: {state}\n")
        case ["netpolicy", "set", "restrict-background", state]:
            call.phone.set_framework_mode("data_saver", state == "true")
        case ["thermalservice", *_]:
            return 0
        case [name, *_]:
            call.streams.stderr.write(encode(f"cmd: Can't find service: {name}\n"))
            return 20
        case _:
            return 20
    return 0


def power(call: CommandCall) -> int:
    """Handle `cmd power`: the fixed-performance mode exists since Android 11."""
    is_offered = call.phone.profile.sdk >= 30
    match call.argv[1:]:
        case ["set-fixed-performance-mode-enabled", state] if is_offered:
            is_enabled = state == "true"
            call.phone.journal.write(JournalEvent.FIXED_PERFORMANCE, enabled=is_enabled)
            call.phone.soc.set_fixed_performance(is_enabled)
        case ["help"]:
            verbs = ["set-mode MODE"]
            verbs += ["set-fixed-performance-mode-enabled [true|false]"] if is_offered else []
            call.print("Power manager (power) commands:\n" + "".join(f"  {v}\n" for v in verbs))
        case _:
            return call.fail("Unknown command", 255)
    return 0


def logcat(call: CommandCall) -> int:
    """Print what lmkd wrote; no other tag is kept."""
    call.print("".join(f"{line}\n" for line in call.phone.log))
    return 0


def input_(call: CommandCall) -> int:
    """Handle `input keyevent`, of which only the keys for the screen have an effect."""
    phone = call.phone
    if phone.refuses_adb and call.uid != 0:
        return call.fail(_DENIED.format("Injecting input events", "INJECT_EVENTS"), 255)
    match call.argv[1:]:
        case ["keyevent", "KEYCODE_WAKEUP" | "224"]:
            phone.is_awake, phone.touched_at = True, phone.uptime()
        case ["keyevent", "KEYCODE_SLEEP" | "223"]:
            phone.is_awake, phone.slept_at = False, phone.uptime()
    return 0


async def _refuse_package(call: CommandCall) -> int:
    """Read the streamed package, as adb expects, and refuse it."""
    if "-S" in call.argv:
        remaining = int(call.argv[call.argv.index("-S") + 1])
        while remaining > 0 and (chunk := await call.streams.stdin.read()):
            remaining -= len(chunk)
    call.print("Failure [INSTALL_FAILED_USER_RESTRICTED: this phone takes no packages]\n")
    return 1


def pm(call: CommandCall) -> "int | Awaitable[int]":
    match call.argv[1:]:
        case ["list", "packages", *_]:
            call.print("package:android\npackage:com.android.settings\npackage:com.android.shell\n")
        case ["path", "android"]:
            call.print("package:/system/framework/framework-res.apk\n")
        case ["path", "com.topjohnwu.magisk"] if call.phone.refuses_root:
            call.print("package:/data/app/com.topjohnwu.magisk/base.apk\n")
        case ["path", *_]:
            return 1
        case ["install" | "install-create" | "install-write" | "install-streaming", *_]:
            return _refuse_package(call)
        case ["uninstall", *_]:
            call.print("Failure [DELETE_FAILED_INTERNAL_ERROR]\n")
            return 1
        case ["bg-dexopt-job", "--enable" | "--disable" as verb] if call.phone.profile.sdk >= 34:
            call.phone.set_framework_mode("dexopt", verb == "--enable")
        case ["bg-dexopt-job", *_]:
            return 0
        case _:
            call.print("Package manager (package) commands:\n")
            return 255
    return 0


ANDROID_COMMANDS: dict[str, CommandFunction] = {
    **by_name(cmd, dumpsys, logcat, lshal, pm, settings),
    "input": input_,
}
