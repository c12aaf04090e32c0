"""Commands about the phone as a Linux machine: who, what, when, properties, services."""

from datetime import UTC, datetime

from agent.virtual.commands.options import split_options
from agent.virtual.processes import Process
from agent.virtual.shell.call import Call, Program, occupy

_GROUPS = "2000(shell),1004(input),1007(log),1015(sdcard_rw),3001(net_bt_admin),3009(readproc)"


def identity(call: Call) -> int:
    options, _ = split_options(call.argv[1:])
    root = call.uid == 0
    if "u" in options or "g" in options:
        name = "root" if root else "shell"
        call.say(f"{name if 'n' in options else call.uid}\n")
    elif root:
        call.say("uid=0(root) gid=0(root) groups=0(root) context=u:r:magisk:s0\n")
    else:
        call.say(f"uid=2000(shell) gid=2000(shell) groups={_GROUPS} context=u:r:shell:s0\n")
    return 0


def whoami(call: Call) -> int:
    call.say("root\n" if call.uid == 0 else "shell\n")
    return 0


def uname(call: Call) -> int:
    options, _ = split_options(call.argv[1:])
    release = call.phone.profile.kernel.release
    facts = {
        "s": "Linux",
        "n": "localhost",
        "r": release,
        "v": "#1 SMP PREEMPT",
        "m": "aarch64",
    }
    chosen = list(facts) if "a" in options else [key for key in facts if key in options] or ["s"]
    tail = " Android" if "a" in options else ""
    call.say(" ".join(facts[key] for key in chosen) + f"{tail}\n")
    return 0


def date(call: Call) -> int:
    words = [word for word in call.argv[1:] if word.startswith("+")]
    now = datetime.fromtimestamp(call.phone.wall(), UTC)
    if words:
        shape = words[0][1:].replace("%s", str(int(now.timestamp())))
        shape = shape.replace("%N", f"{now.microsecond * 1000:09d}")
        call.say(now.strftime(shape) + "\n")
    else:
        call.say(now.strftime("%a %b %e %H:%M:%S UTC %Y") + "\n")
    return 0


def uptime(call: Call) -> int:
    call.phone.timeline.catch_up()
    minutes = int(call.phone.uptime() // 60)
    clock = datetime.fromtimestamp(call.phone.wall(), UTC).strftime("%H:%M:%S")
    call.say(f" {clock} up {minutes // 60}:{minutes % 60:02d},  0 users\n")
    return 0


def getprop(call: Call) -> int:
    properties = call.phone.properties
    if len(call.argv) > 1:
        default = call.argv[2] if len(call.argv) > 2 else ""
        call.say(properties.get(call.argv[1], default) + "\n")
    else:
        call.say("".join(f"[{key}]: [{properties[key]}]\n" for key in sorted(properties)))
    return 0


def setprop(call: Call) -> int:
    if len(call.argv) != 3:
        return call.complain("Needs 2 arguments")
    name, value = call.argv[1:]
    system = not name.startswith(("debug.", "log.", "persist.log."))
    if name.startswith("ro.") or (system and call.uid != 0):
        return call.complain(f"failed to set property '{name}' to '{value}'")
    call.phone.journal.write("property", name=name, new=value)
    if name in ("ctl.stop", "ctl.start"):
        call.phone.set_service(value, running=name == "ctl.start")
    else:
        call.phone.properties[name] = value
    return 0


def stop(call: Call) -> int:
    return _service(call, running=False)


def start(call: Call) -> int:
    return _service(call, running=True)


def _service(call: Call, running: bool) -> int:
    if call.uid != 0:
        return call.complain("must be root")
    for name in call.argv[1:]:
        call.phone.set_service(name, running)
    return 0


def which(call: Call) -> int:
    found = 0
    for name in call.argv[1:]:
        path = call.shell.where(name)
        if path is None:
            found = 1
        else:
            call.say(f"{path}\n")
    return found


def getenforce(call: Call) -> int:
    call.say("Enforcing\n")
    return 0


def reboot(call: Call) -> int:
    call.phone.reboot(call.argv[1] if len(call.argv) > 1 else "")
    return 0


def nothing(call: Call) -> int:
    """A command that has nothing to do here and says so by succeeding."""
    return 0


def log(call: Call) -> int:
    """log [-p LEVEL] [-t TAG] TEXT.."""
    options, words = split_options(call.argv[1:], valued="pt")
    level = (options.get("p") or "i")[:1].upper()
    call.phone.log.write(level, options.get("t") or "log", " ".join(words), call.process.pid)
    return 0


async def logcat(call: Call) -> int:
    """logcat [-c] [-d] [-t N]; without -d it goes on until somebody ends it."""
    options, words = split_options(call.argv[1:], valued="tTbvsfrnGem")
    buffer = call.phone.log
    if "c" in options:
        buffer.clear()
        return 0
    tags = {word.partition(":")[0] for word in words if word not in ("*:S", "*:V")}
    lines, seen = buffer.since(0)
    lines = lines[-int(options["t"] or 0) :] if options.get("t", "").isdigit() else lines
    call.say("--------- beginning of main\n")

    async def body(process: Process) -> int:
        nonlocal lines, seen
        while True:
            shown = [line for line in lines if not tags or line.split()[5].rstrip(":") in tags]
            call.say("".join(f"{line}\n" for line in shown))
            await call.streams.drain()
            if {"d", "t"} & set(options):
                return 0
            await buffer.wait()
            lines, seen = buffer.since(seen)

    return await occupy(call, call.argv, body)


SYSTEM: dict[str, Program] = {
    "date": date,
    "getenforce": getenforce,
    "getprop": getprop,
    "id": identity,
    "log": log,
    "logcat": logcat,
    "reboot": reboot,
    "setprop": setprop,
    "start": start,
    "stop": stop,
    "fsync": nothing,
    "sync": nothing,
    "uname": uname,
    "uptime": uptime,
    "which": which,
    "whoami": whoami,
}
