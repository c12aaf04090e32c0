"""The shell: grammar, expansion, and commands with the messages of mksh and toybox."""

import asyncio

import pytest

from agent.virtual.profiles import load_profile
from agent.virtual.program_lookup import ProgramLookup
from agent.virtual.shell.byte_streams import BufferedSource, BytePipe
from agent.virtual.shell.command_call import StdStreams
from agent.virtual.shell.interpreter import Shell
from agent.virtual.virtual_phone import VirtualPhone
from tests.virtual.adb_host import AdbPhone, read_packets
from tests.virtual.conftest import JournalReader, StartPhone


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo a; echo b", "a\nb"),
        ("echo 'a  $x' \"b  c\" d\\ e", "a  $x b  c d e"),
        ("true && echo yes || echo no", "yes"),
        ("false && echo yes || echo no", "no"),
        ("(exit 3) & x=$!; sleep 1; wait $x; echo $?", "3"),
        ("false; x=$?; y=$(false); echo $x $? $(echo)", "1 1"),
        ("! false; echo $?", "0"),
        ("x=5; y=$x$x; echo ${y}1 ${z:-none} ${#y}", "551 none 2"),
        ("x=a.tar.gz; echo ${x%.*} ${x%%.*} ${x#*.}", "a.tar a tar.gz"),
        ("x='a   b'; echo $x; echo \"$x\"", "a b\na   b"),
        ("echo $(echo inner; echo two) `echo back`", "inner two back"),
        ("echo $((2 + 3 * 4)) $(( (7 - 1) / 2 ))", "14 3"),
        ("i=0; while [ $i -lt 3 ]; do i=$((i+1)); done; echo $i", "3"),
        ("until true; do echo never; done; echo done", "done"),
        ("for i in 1 2 3; do [ $i = 2 ] && continue; echo $i; done", "1\n3"),
        ("for i in 1 2 3; do echo $i; break; done", "1"),
        ("if [ -d /sys ]; then echo dir; elif true; then echo no; else echo no; fi", "dir"),
        ("case abc in x|y) echo no;; a*) echo star;; esac", "star"),
        ("{ echo a; echo b; } | wc -l", "2"),
        ("(cd /sys; pwd); pwd", "/sys\n/"),
        ("echo a | cat | cat", "a"),
        ("ls /nope 2>/dev/null; echo $?", "1"),
        ("ls /nope 2>&1 | cat", "ls: /nope: No such file or directory"),
        ("echo one\\ntwo", "onentwo"),
        ("echo 'one\\ntwo'", "one\ntwo"),  # mksh's echo expands escapes
        ("echo -n a; echo b", "ab"),
        ("printf '%s=%03d %x\\n' a 7 255 b 8 16", "a=007 ff\nb=008 10"),
        (
            "echo /sys/class/thermal/thermal_zone1?/type",
            "/sys/class/thermal/thermal_zone10/type "
            "/sys/class/thermal/thermal_zone11/type /sys/class/thermal/thermal_zone12/type "
            "/sys/class/thermal/thermal_zone13/type",
        ),
        ("echo '/sys/*' /nope/*", "/sys/* /nope/*"),
        ("sh -c 'echo $0 $1' name arg", "name arg"),
        ('set -- a b; echo $# $2 "$@"', "2 b a b"),
        ("echo a # comment\necho b", "a\nb"),
        ("x=$(false) || echo failed", "failed"),
        ("eval 'echo evaluated'", "evaluated"),
        ("echo a b c | { read x y; echo $y-$x; }", "b c-a"),
        ("cat < /dev/null; echo $?", "0"),
        ("exit 0; echo never", ""),
    ],
)
def test_a_script_prints(phone: AdbPhone, script: str, expected: str) -> None:
    assert phone.run(script).out.rstrip("\n") == expected


@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        ("nope", 127, "/system/bin/sh: nope: not found"),
        ("/data/local/tmp/none", 127, "/system/bin/sh: /data/local/tmp/none: not found"),
        ("cat /none", 1, "cat: /none: No such file or directory"),
        ("cat /sys", 1, "cat: /sys: Is a directory"),
        ("ls /data", 1, "ls: /data: Permission denied"),
        ("mkdir /sys/x", 1, "mkdir: '/sys/x': Permission denied"),
        ("mkdir /system/x", 1, "mkdir: '/system/x': Read-only file system"),
        ("rm /none", 1, "rm: /none: No such file or directory"),
        ("kill 99999", 1, "/system/bin/sh: kill: 99999: No such process"),
        ("kill 1", 1, "/system/bin/sh: kill: 1: Operation not permitted"),
        (
            "echo 1 > /sys/class/thermal/thermal_zone0/temp",
            1,
            "/system/bin/sh: can't create /sys/class/thermal/thermal_zone0/temp: Permission denied",
        ),
        ("cat < /none", 1, "/system/bin/sh: can't open /none: No such file or directory"),
        ("echo a | ( exit 4 )", 4, ""),
        ("for x in", 1, "/system/bin/sh: syntax error: 'do' is missing"),
        ("echo ')", 1, "/system/bin/sh: no closing '"),
        ("cd /proc/version", 1, "cd: /proc/version: Not a directory"),
        ("stat", 0, ""),
        (".", 1, ".: bad arguments"),
    ],
)
def test_a_script_fails_with_the_messages_of_the_phone(
    phone: AdbPhone, script: str, status: int, text: str
) -> None:
    result = phone.run(script)
    assert (result.status, result.err.rstrip("\n")) == (status, text)


def test_a_newer_phone_prints_inaccessible_or_not_found(
    start_phone: StartPhone, journal_events: JournalReader
) -> None:
    """mksh changed its message with Android 10; a missing command is journalled either way."""
    result = start_phone("xiaomi-mi-9").run("frobnicate -v")
    assert result[::2] == (127, "/system/bin/sh: frobnicate: inaccessible or not found\n")
    assert [entry["argv"] for entry in journal_events("unknown_command")] == [["frobnicate", "-v"]]


def test_grep_reads_many_nodes_at_once(phone: AdbPhone) -> None:
    result = phone.run('grep -s "" /dev/null /proc/version /none /sys/devices/system/cpu/online')
    assert result.status == 0
    paths = [line.partition(":")[0] for line in result.out.splitlines()]
    assert paths == ["/proc/version", "/sys/devices/system/cpu/online"]
    assert result.err == ""


@pytest.mark.parametrize(
    ("options", "expected", "status"),
    [
        ("b", "b\nbb", 0),
        ("-c b", "2", 0),
        ("-v b", "a\nC", 0),
        ("-i c", "C", 0),
        ("-q b", "", 0),
        ("-E '^(a|bb)$'", "a\nbb", 0),
        ("zzz", "", 1),
    ],
)
def test_grep_options(phone: AdbPhone, options: str, expected: str, status: int) -> None:
    result = phone.run(f"printf 'a\\nb\\nbb\\nC\\n' | grep {options}")
    assert (result.status, result.out.rstrip("\n")) == (status, expected)


def test_files_are_created_and_removed(phone: AdbPhone) -> None:
    folder = "/data/local/tmp/files"
    output = phone.out(
        f"mkdir -p {folder}/a/b; cd {folder}; echo 1 > x; echo 2 >> x; cat x > y; mv y a/b/z; "
        "chmod 755 x; "
        "stat -c '%s %a' x; cat a/b/z; head -n 1 x; tail -n 1 x; tail -c +3 x; wc -c x; ls; "
        f"ln -s x l; cat l; [ -L l ] && echo link; rm -rf {folder}; ls {folder} 2>&1; "
        "sha256sum /dev/null"
    )
    assert output.splitlines() == [
        *("4 755", "1", "2", "1", "2", "2", "4 x", "a", "x", "1", "2", "link"),
        f"ls: {folder}: No such file or directory",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  /dev/null",
    ]


def test_settings_and_properties_are_kept(start_phone: StartPhone) -> None:
    phone = start_phone()
    assert phone.out("settings get system screen_brightness") == "102"
    assert (
        phone.out("settings put system screen_brightness 1; settings get system screen_brightness")
        == "1"
    )
    assert phone.out("settings get global nothing") == "null"
    assert phone.run("setprop ctl.stop thermal-engine").status == 1
    assert phone.out("getprop init.svc.thermal-engine") == "running"
    phone.root("stop thermal-engine")
    assert phone.out("getprop init.svc.thermal-engine") == "stopped"
    assert phone.run("pgrep -x thermal-engine").status == 1
    assert "[ro.serialno]: [VM16T0001]" in phone.out("getprop").splitlines()


def test_su_gives_root_where_the_phone_is_rooted(phone: AdbPhone) -> None:
    assert phone.out("id -u") == "2000"
    for command in ("su -c 'id -u'", "su 0 id -u", "su root id -u", "echo 'id -u' | su"):
        assert phone.out(command) == "0", command


def test_one_shell_runs_many_commands(phone: AdbPhone) -> None:
    shell = phone.shell()
    assert shell.line("id -u") == (0, "2000\n")
    for turn in range(200):
        assert shell.line(f"echo {turn}; (exit {turn % 7})") == (turn % 7, f"{turn}\n")
    shell.send("su\n")
    assert shell.line("id -u") == (0, "0\n")
    shell.send("exit\n")
    assert shell.line("id -u") == (0, "2000\n")
    assert shell.line("nope")[0] == 127
    assert shell.line("x=5\nif [ $x = 5 ]\nthen\necho $x\nfi") == (0, "5\n")
    shell.send("exec su\n")
    assert shell.line("id -u") == (0, "0\n")
    assert shell.end().status == 0


def test_many_lines_sent_at_once_are_answered_in_order(phone: AdbPhone) -> None:
    shell = phone.shell()
    shell.send("".join(f"echo {number}\n" for number in range(500)) + "exit 9\n")
    result = shell.end()
    assert (result.status, result.out.split()) == (9, [str(number) for number in range(500)])


def test_a_busy_loop_does_not_block_other_commands(phone: AdbPhone) -> None:
    stream = phone.host.open_service(phone.address, "shell,v2,raw:while true; do :; done")
    assert phone.out("echo alive") == "alive"
    stream.close()


def test_an_interactive_shell_has_prompt_and_echo(phone: AdbPhone) -> None:
    with phone.host.open_service(phone.address, "shell,v2,TERM=xterm,pty:") as stream:
        keys = b"echo helo\x7flo\rsu\rid -u\rexit\rexit\r"
        stream.sendall(b"\0" + len(keys).to_bytes(4, "little") + keys)
        result = read_packets(stream)
    assert result.out.startswith("16T:/ $ echo helo\b \blo\r\n")
    assert "\r\nhello\r\n" in result.out.replace("16T:/ $ ", "\r\n")
    assert "16T:/ # 0\r\n" in result.out


def test_cursor_keys_navigate_the_history(phone: AdbPhone) -> None:
    with phone.host.open_service(phone.address, "shell,v2,TERM=xterm,pty:") as stream:
        keys = b"echo one\recho two\r\x1b[A\x1b[A\r\x1bOA\x1b[D\x1b[1;5C\x15exit\r"
        stream.sendall(b"\0" + len(keys).to_bytes(4, "little") + keys)
        result = read_packets(stream)
    # Each line appears once as typed and once as printed; "one" was run twice.
    assert (result.out.count("one\r\n"), result.out.count("two\r\n")) == (4, 2)
    assert "[D" not in result.out


def test_a_stock_phone_has_no_su() -> None:
    phone = VirtualPhone(
        load_profile("huawei-mate-30").model_copy(update={"rooted": False}), speed=0.0
    )
    shell = Shell(phone, phone.processes.spawn(None, ["sh"]), ProgramLookup())

    async def type_text(text: str) -> tuple[int, str]:
        pipe = BytePipe()
        status = await shell.run_text(text, StdStreams(BufferedSource(), pipe, pipe))
        return status, pipe.content().decode()

    expected = (127, "/system/bin/sh: su: inaccessible or not found\n")
    assert asyncio.run(type_text("su -c id")) == expected
    assert asyncio.run(type_text("which su")) == (1, "")
