"""Commands of the Android framework: settings that are stored, switches, packages."""

from collections.abc import Awaitable
from zlib import crc32

from agent.virtual.commands.dumpsys import dumpsys
from agent.virtual.shell.call import Call, Program, encode

_SPACES = ("global", "system", "secure")


def settings(call: Call) -> int:
    words = call.argv[1:]
    if words[:1] == ["--user"]:
        words = words[2:]
    if len(words) < 2 or words[1] not in _SPACES:
        return call.complain("usage: settings get|put|delete|list global|system|secure NAME", 255)
    verb, space, rest = words[0], call.phone.settings[words[1]], words[2:]
    match verb, rest:
        case "get", [name, *_]:
            call.say(space.get(name, "null") + "\n")
        case "put", [name, value, *_]:
            call.phone.journal.write(
                "setting", space=words[1], name=name, old=space.get(name), new=value
            )
            space[name] = value
        case "delete", [name, *_]:
            gone = space.pop(name, None)
            call.phone.journal.write("setting", space=words[1], name=name, old=gone, new=None)
            call.say(f"Deleted {int(gone is not None)} rows\n")
        case "list", _:
            call.say("".join(f"{name}={space[name]}\n" for name in sorted(space)))
        case _:
            return call.complain(f"Invalid command: {verb}", 255)
    return 0


def svc(call: Call) -> int:
    """svc power stayon .., svc wifi|data|bluetooth|nfc enable|disable"""
    space = call.phone.settings["global"]
    match call.argv[1:]:
        case ["power", "stayon", state, *_]:
            states = {"true": "7", "false": "0", "ac": "1", "usb": "2", "wireless": "4"}
            space["stay_on_while_plugged_in"] = states.get(state, "0")
        case ["wifi" | "data" | "bluetooth" | "nfc" as what, "enable" | "disable" as state]:
            name = {"wifi": "wifi_on", "data": "mobile_data", "bluetooth": "bluetooth_on"}
            space[name.get(what, f"{what}_on")] = "1" if state == "enable" else "0"
        case ["power", "reboot", *_]:
            call.phone.reboot()
        case ["usb", *_] | ["power", "shutdown"]:
            return 0
        case _:
            call.say("Available commands:\n    help\n    power\n    data\n    wifi\n    nfc\n")
            return 1
    return 0


def cmd(call: Call) -> "int | Awaitable[int]":
    match call.argv[1:]:
        case ["settings", *rest]:
            return settings(Call(["settings", *rest], call.shell, call.process, call.streams))
        case ["package", *rest]:
            return package(Call(["pm", *rest], call.shell, call.process, call.streams))
        case ["activity", *rest]:
            return activity(Call(["am", *rest], call.shell, call.process, call.streams))
        case ["connectivity", "airplane-mode", state]:
            call.phone.settings["global"]["airplane_mode_on"] = str(int(state == "enable"))
        case ["power", *rest]:
            return power(Call(["power", *rest], call.shell, call.process, call.streams))
        case ["netpolicy", "get", "restrict-background"]:
            state = "enabled" if call.phone.modes["data_saver"] else "disabled"
            call.say(f"Restrict background status: {state}\n")
        case ["netpolicy", "set", "restrict-background", state]:
            call.phone.set_mode("data_saver", state == "true")
        case ["thermalservice", *_]:
            return 0
        case [name, *_]:
            call.streams.stderr.write(encode(f"cmd: Can't find service: {name}\n"))
            return 20
        case _:
            return 20
    return 0


def power(call: Call) -> int:
    """cmd power: the framework's own steady clock, since Android 11."""
    offered = call.phone.profile.sdk >= 30
    match call.argv[1:]:
        case ["set-fixed-performance-mode-enabled", state] if offered:
            wanted = state == "true"
            call.phone.journal.write("fixed_performance", enabled=wanted)
            call.phone.soc.hold_steady(wanted)
        case ["help"]:
            verbs = ["set-mode MODE"]
            verbs += ["set-fixed-performance-mode-enabled [true|false]"] if offered else []
            call.say("Power manager (power) commands:\n" + "".join(f"  {v}\n" for v in verbs))
        case _:
            return call.complain("Unknown command", 255)
    return 0


def activity(call: Call) -> int:
    match call.argv[1:]:
        case ["start", *_]:
            call.say("Starting: Intent { }\n")
        case ["force-stop" | "kill-all" | "kill" | "broadcast" | "stopservice", *_]:
            return 0
        case ["get-current-user"]:
            call.say("0\n")
        case _:
            call.say("Activity manager (activity) commands:\n")
            return 255
    return 0


async def _refuse_package(call: Call) -> int:
    """Take what is streamed, as adb wants it taken, and say no."""
    if "-S" in call.argv:
        left = int(call.argv[call.argv.index("-S") + 1])
        while left > 0 and (chunk := await call.streams.stdin.read()):
            left -= len(chunk)
    call.say("Failure [INSTALL_FAILED_USER_RESTRICTED: this phone takes no packages]\n")
    return 1


def package(call: Call) -> "int | Awaitable[int]":
    match call.argv[1:]:
        case ["list", "packages", *_]:
            call.say("package:android\npackage:com.android.settings\npackage:com.android.shell\n")
        case ["path", "android"]:
            call.say("package:/system/framework/framework-res.apk\n")
        case ["path", *_]:
            return 1
        case ["install" | "install-create" | "install-write" | "install-streaming", *_]:
            return _refuse_package(call)
        case ["uninstall", *_]:
            call.say("Failure [DELETE_FAILED_INTERNAL_ERROR]\n")
            return 1
        case ["bg-dexopt-job", "--enable" | "--disable" as verb] if call.phone.profile.sdk >= 34:
            call.phone.set_mode("dexopt", verb == "--enable")
        case ["disable-user" | "enable" | "trim-caches" | "bg-dexopt-job", *_]:
            return 0
        case _:
            call.say("Package manager (package) commands:\n")
            return 255
    return 0


def quiet(call: Call) -> int:
    """input, wm and the like: nobody looks at this screen."""
    return 0


def content(call: Call) -> int:
    """content query, of which tools ask the android_id."""
    if "content://settings/secure" in call.argv and "android_id" in " ".join(call.argv):
        call.say(f"Row: 0 value={crc32(call.phone.serial.encode()):016x}\n")
        return 0
    return call.complain("[ERROR] Unsupported operation", 1)


def service(call: Call) -> int:
    """service list, service check NAME"""
    if call.argv[1:2] == ["check"]:
        state = "found" if call.argv[2:3] in (["battery"], ["power"], ["package"]) else "not found"
        call.say(f"Service {' '.join(call.argv[2:3])}: {state}\n")
    else:
        call.say("Found 3 services:\n0\tbattery: []\n1\tpower: []\n2\tpackage: []\n")
    return 0


ANDROID: dict[str, Program] = {
    "am": activity,
    "cmd": cmd,
    "content": content,
    "dumpsys": dumpsys,
    "input": quiet,
    "pm": package,
    "service": service,
    "settings": settings,
    "svc": svc,
    "wm": quiet,
}
