"""Android's own commands on a native phone: one shell script with many names.

They store properties and settings; they know nothing about heat, clocks and charge. `mv` is among
them because the agent pushes lists of nodes (kernels/runner/runner.h), which a runner on this host
has to find below the phone's directory.
"""

STUB_NAMES = (
    "am",
    "cmd",
    "dumpsys",
    "getenforce",
    "getprop",
    "input",
    "log",
    "logcat",
    "mv",
    "pm",
    "reboot",
    "setprop",
    "settings",
    "start",
    "stop",
    "su",
    "svc",
    "wm",
)

STUB = r"""#!/bin/sh
ROOT=@ROOT@
name=$(basename "$0")
case "$name" in
getprop)
    if [ -z "$1" ]; then
        sed 's/^\([^=]*\)=\(.*\)$/[\1]: [\2]/' "$ROOT/system/build.prop"
    else
        value=$(grep -F "$1=" "$ROOT/system/build.prop" | grep "^$1=" | head -n 1)
        if [ -n "$value" ]; then echo "${value#*=}"; else echo "$2"; fi
    fi ;;
settings)
    [ "$1" = --user ] && shift 2
    file="$ROOT/data/settings/$2.$3"
    case "$1" in
    get) if [ -f "$file" ]; then cat "$file"; else echo null; fi ;;
    put) echo "$4" > "$file" ;;
    delete) rm -f "$file"; echo "Deleted 1 rows" ;;
    list) cd "$ROOT/data/settings" && for f in "$2".*; do
        [ -f "$f" ] && echo "${f#$2.}=$(cat "$f")"; done; true ;;
    *) exit 255 ;;
    esac ;;
dumpsys)
    case "$1" in
    power) printf 'POWER MANAGER\n\nDisplay Power: state=ON\n  mWakefulness=Awake\n' ;;
    *) echo "Can't find service: $1" ;;
    esac ;;
getenforce) echo Permissive ;;
mv)
    case "$#$3" in
    3*/nodes | 3*/restore)
        sed "s|^/sys/|$ROOT/sys/|" "$2" > "$2.host" && PATH=/usr/bin:/bin mv -f "$2.host" "$3" &&
            rm -f "$2" ;;
    *) PATH=/usr/bin:/bin exec mv "$@" ;;
    esac ;;
su) echo "$name: inaccessible or not found" >&2; exit 127 ;;
setprop | start | stop) echo "$name: must be root" >&2; exit 1 ;;
reboot) echo "$name: use adb reboot" >&2; exit 1 ;;
cmd)
    if [ "$1" = settings ]; then shift; exec "$ROOT/system/bin/settings" "$@"; fi
    echo "cmd: Can't find service: $1" >&2; exit 20 ;;
pm)
    case "$1" in
    list) echo package:android ;;
    path) exit 1 ;;
    *) echo "Failure [INSTALL_FAILED_USER_RESTRICTED: this phone takes no packages]"; exit 1 ;;
    esac ;;
*) exit 0 ;;
esac
"""
