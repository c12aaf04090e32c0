"""The files of a witness: /sys as a Qualcomm kernel shows it, and stand-ins for the framework.

The stand-ins print files: what only Android's framework has cannot be had from packages. Two of the
zones are traps of real phones: `socd` is the depth of discharge, `modem-skin-usr` is never sampled.
"""

import shutil
from pathlib import Path

ZONES = {
    "modem-skin-usr": 27_000,
    "cpu-0-0-usr": 29_100,
    "cpuss-0-usr": 28_700,
    "cpu-1-0-usr": 29_900,
    "gpuss-0-usr": 28_400,
    "socd": 80,
    "conn-therm-usr": -40_000,
    "quiet_therm": 27_900,
    "battery": 27_300,
}
LADDERS = {
    0: (300_000, 691_200, 1_113_600, 1_516_800),
    1: (691_200, 1_228_800, 1_651_200, 2_016_000),
}
SETTINGS = """\
global airplane_mode_on=0
global stay_on_while_plugged_in=0
global wifi_scan_always_enabled=1
system screen_brightness=102
system screen_brightness_mode=1
"""
BATTERY = """\
Current Battery Service state:
  AC powered: true
  status: 2
  health: 2
  present: true
  level: 85
  scale: 100
  voltage: 3900
  temperature: 271
  technology: Li-ion
"""
THERMALSERVICE = """\
IsStatusOverride: false
Thermal Status: 0
Cached temperatures:
HAL Ready: false
"""
LOG = 'echo "${0##*/} $*" >>/data/local/tmp/framework.log\n'
STAND_INS = {
    "getprop": """\
[ $# = 0 ] && { cat /tmp/props.txt; exit 0; }
while IFS= read -r line; do
  case $line in "[$1]: ["*) value=${line#*: \\[}; echo "${value%]}"; exit 0;; esac
done </tmp/props.txt
echo "$2"
""",
    "setprop": """\
[ "$(id -u)" = 0 ] || { echo "setprop: failed to set property '$1' to '$2'" >&2; exit 1; }
grep -v "^\\[$1\\]" /tmp/props.txt >/tmp/props.new
echo "[$1]: [$2]" >>/tmp/props.new
cat /tmp/props.new >/tmp/props.txt
""",
    "dumpsys": """\
case "$1 $2" in
"thermalservice "*) cat /tmp/thermalservice.txt;;
"battery "*) cat /tmp/battery.txt;;
"deviceidle enabled") cat /data/local/tmp/.doze 2>/dev/null || echo 1;;
"deviceidle disable") echo 0 >/data/local/tmp/.doze; echo "Deep idle mode disabled";;
"deviceidle enable") echo 1 >/data/local/tmp/.doze; echo "Deep idle mode enabled";;
*) echo "Can't find service: $1";;
esac
""",
    "settings": """\
file=/data/local/tmp/.settings
[ -e $file ] || cat /tmp/settings.txt >$file
case $1 in
list) grep "^$2 " $file | cut -d' ' -f2-;;
get) grep "^$2 $3=" $file | cut -d= -f2- | grep . || echo null;;
put) grep -v "^$2 $3=" $file >$file.new; echo "$2 $3=$4" >>$file.new; mv -f $file.new $file;;
delete) grep -v "^$2 $3=" $file >$file.new; mv -f $file.new $file; echo "Deleted 1 rows";;
esac
""",
    "cmd": """\
case "$*" in
"netpolicy get restrict-background") echo "Restrict background status: disabled";;
"netpolicy set"*|"connectivity airplane-mode"*) exit 0;;
*) echo "cmd: Can't find service: $1" >&2; exit 20;;
esac
""",
    "pm": "exit 1\n",
    "start": "exit 0\n",
    "stop": "exit 0\n",
    # Root as Magisk gives it: a daemon outside of adbd starts the shell.
    "su": "exec nc 127.0.0.1 5999\n",
}


def write_layout(
    folder: Path, serial: str, *, rooted: bool = False, hidden: bool = False, abi: str = "x86_64"
) -> Path:
    """Write the files of a phone; `hidden` nodes cannot be read by the shell user."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, text in _nodes().items():
        file = folder / "sys" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    if hidden:
        for name in ("class/thermal", "class/power_supply/battery"):
            (folder / "sys" / name).chmod(0o700)
    properties = {
        "ro.serialno": serial,
        "ro.boot.serialno": serial,
        "ro.product.manufacturer": "Witness",
        "ro.product.model": "Witness",
        "ro.product.cpu.abi": abi,
        "ro.board.platform": "holi",
        "ro.build.version.release": "13",
        "ro.build.version.sdk": "33",
        "sys.boot_completed": "1",
    }
    lines = [f"[{name}]: [{value}]\n" for name, value in properties.items()]
    (folder / "props.txt").write_text("".join(lines))
    (folder / "settings.txt").write_text(SETTINGS)
    (folder / "battery.txt").write_text(BATTERY)
    (folder / "thermalservice.txt").write_text(THERMALSERVICE)
    programs = folder / "bin"
    programs.mkdir()
    for name, script in STAND_INS.items():
        if name != "su" or rooted:
            (programs / name).write_text(f"#!/system/bin/sh\n{script}")
            (programs / name).chmod(0o755)
    return folder


def _nodes() -> dict[str, str]:
    cpu = "devices/system/cpu"
    nodes = {f"{cpu}/{name}": "0-1\n" for name in ("present", "online", "possible")}
    for number, (name, value) in enumerate(ZONES.items()):
        zone = f"class/thermal/thermal_zone{number}"
        nodes |= {f"{zone}/type": f"{name}\n", f"{zone}/temp": f"{value}\n"}
    for core, ladder in LADDERS.items():
        policy = f"{cpu}/cpufreq/policy{core}"
        values = {
            "related_cpus": core,
            "affected_cpus": core,
            "scaling_available_frequencies": " ".join(map(str, ladder)),
            "cpuinfo_max_freq": ladder[-1],
            "cpuinfo_min_freq": ladder[0],
            "scaling_max_freq": ladder[-1],
            "scaling_min_freq": ladder[0],
            "scaling_cur_freq": f"{ladder[1]:07}",  # of constant length, see phone_init.py
            "scaling_governor": "schedutil",
            "scaling_available_governors": "performance powersave schedutil",
        }
        nodes |= {f"{policy}/{name}": f"{value}\n" for name, value in values.items()}
        nodes[f"{policy}/stats/time_in_state"] = "".join(f"{khz} {100:09}\n" for khz in ladder)
        nodes[f"{cpu}/cpu{core}/cpu_capacity"] = f"{400 + 624 * core}\n"
        nodes[f"{cpu}/cpu{core}/online"] = "1\n"
        cooler = f"class/thermal/cooling_device{core}"
        states = {"type": f"thermal-cpufreq-{core}", "cur_state": 0, "max_state": 3}
        nodes |= {f"{cooler}/{name}": f"{value}\n" for name, value in states.items()}
    battery = {
        "capacity": 85,
        "status": "Discharging",
        "temp": 273,
        "current_now": "-0312500",
        "voltage_now": 3_900_000,
        "charge_full": 4_300_000,
    }
    nodes |= {f"class/power_supply/battery/{name}": f"{value}\n" for name, value in battery.items()}
    return nodes
