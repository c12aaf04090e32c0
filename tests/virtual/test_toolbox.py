"""Shell features and commands that phone tools use: here documents, functions, filters, toybox."""

import pytest

from tests.virtual.adb_host import AdbPhone
from tests.virtual.conftest import StartPhone


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('cat <<EOF\n$HOME "q" $(echo x)\nEOF\necho after', '/ "q" x\nafter'),
        ("cat <<'EOF'\n$HOME `no`\nEOF", "$HOME `no`"),
        ("cat <<-EOF\n\t\tin\n\tEOF\necho out", "in\nout"),
        ("cat <<A; cat <<B\n1\nA\n2\nB", "1\n2"),
        ("while read a b; do echo $b-$a; done <<X\n1 2\n3 4\nX", "2-1\n4-3"),
        ("cat <<< word", "word"),
        ("f() { echo in $1 $#; return 3; }; f a b; echo $?", "in a 2\n3"),
        ("function g { local x=2; echo $x; }; x=1; g; echo $x", "2\n1"),
        ("f() { for i in 1 2; do [ $i = 2 ] && return 7; done; }; f; echo $?", "7"),
        ("set -e; false || true; if false; then :; fi; ! true; echo a; false; echo no", "a"),
        ("set -e; set +e; false; echo a", "a"),
        ("set -o pipefail; false | true; echo $?", "1"),
        ('x=1 sh -c "echo \\$x"; echo "<$x>"', "1\n<>"),
        ("IFS=: read -r a b <<< '1:2:3'; echo $a $b", "1 2:3"),
        ("IFS=,; x=a,b; set -- $x; echo $#", "2"),
        ("x=hello; echo ${x/l/L} ${x//l/L} ${x:1:3} ${x: -2}", "heLlo heLLo ell lo"),
        ("echo $((0x10 + 010)) $((1 > 0 ? 5 : 6)) $(((1+2)*3)) $((~1))", "26 5 9 -2"),
        ("[[ abc == a* && -d /sys ]] || echo no", "no"),
        ("[[ abc == a* ]] && echo yes", "yes"),
        ("echo $(< /proc/sys/kernel/osrelease)", "4.14.83-perf"),
        ("sleep 1 & echo x", "x"),
        ("sleep 1& echo x; echo y", "x\ny"),
        ("eval 'exit 0'; echo never", ""),
        ("printf 'a:b:c\\nd\\n' | cut -d: -f2-", "b:c\nd"),
        ("echo hello | cut -c2-3", "el"),
        ("echo hello | tr a-y b-z | tr -d m", "ifp"),
        ("echo 'a  b' | tr -s ' ' '\\n'", "a\nb"),
        ("printf '1\\n2\\n3\\n' | sed -n 2,3p", "2\n3"),
        ("echo foo bar | sed -e 's/o/0/g' -e 's|bar|<&>|'", "f00 <bar>"),
        ("echo a1b22 | sed -E 's/([a-z])([0-9]+)/\\2\\1/g'", "1a22b"),
        ("printf 'x\\ny\\nz\\n' | sed '/x/d;2q'", "y"),
        ("printf 'b\\n10\\na\\nb\\n' | sort -u; printf '9\\n10\\n' | sort -nr", "10\na\nb\n10\n9"),
        ("cat /proc/self/comm", "sh"),
        ("grep -on e /proc/self/comm; echo h3llo | grep -o '[0-9]'", "3"),
        ("echo -e 'a\\tb' | cat; printf '%5.1f|%-3s|\\n' 2.25 x", "a\tb\n  2.2|x  |"),
        ("toybox echo hi; toybox nope 2>&1", "hi\ntoybox: Unknown command nope"),
    ],
)
def test_a_script_prints(phone: AdbPhone, script: str, expected: str) -> None:
    assert phone.run(script).out.rstrip("\n").removesuffix(" ") == expected


@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        ("set -e; false; echo no", 1, ""),
        ("cat <<EOF\nnever", 1, "/system/bin/sh: here document 'EOF' unclosed"),
        ("f() { f; }; f", 1, "/system/bin/sh: f: too deeply nested"),
        ("sed 's/a' /dev/null", 1, "sed: no closing /"),
        ("sed z /dev/null", 1, "sed: bad pattern 'z'@1 (z)"),
        ("sed -i s/a/b/ /dev/null", 1, "sed: Unknown option 'i'"),
        ("cut x", 1, "cut: no fields"),
        ("return 5", 5, ""),
    ],
)
def test_a_script_fails(phone: AdbPhone, script: str, status: int, text: str) -> None:
    result = phone.run(script)
    assert (result.status, result.err.rstrip("\n")) == (status, text)


def test_a_function_is_kept_between_lines(phone: AdbPhone) -> None:
    shell = phone.shell()
    shell.send("f() {\necho $1\n}\ncat > /data/local/tmp/here <<END\nline 1\nline 2\nEND\n")
    assert shell.line("f x") == (0, "x\n")
    assert shell.line("cat /data/local/tmp/here") == (0, "line 1\nline 2\n")
    assert shell.line("sleep 1 & echo y") == (0, "y\n")
    assert shell.line("echo z") == (0, "z\n")


def test_a_stopped_process_does_not_run_until_it_is_continued(phone: AdbPhone) -> None:
    script = "while true; do echo x >> /data/local/tmp/ticks; sleep 1; done"
    phone.out("rm -f /data/local/tmp/ticks")
    pid = phone.out(f"setsid sh -c '{script}' >/dev/null 2>&1 & echo $!")
    phone.sleep_until(lambda: "x" in phone.run("cat /data/local/tmp/ticks").out, "it ticks")
    phone.out(f"kill -STOP {pid}")
    assert phone.out(f"grep State /proc/{pid}/status") == "State:\tT (stopped)"
    phone.out("sleep 3")
    before = phone.out("wc -l < /data/local/tmp/ticks")
    phone.out("sleep 20")
    assert phone.out("wc -l < /data/local/tmp/ticks") == before
    phone.out(f"kill -CONT {pid}")
    phone.sleep_until(lambda: before != phone.out("wc -l < /data/local/tmp/ticks"), "it goes on")
    phone.out(f"kill -9 {pid}")


def test_processes_are_found_and_killed_by_name(phone: AdbPhone) -> None:
    pid = phone.out("setsid sleep 91234 >/dev/null 2>&1 & echo $!")
    assert phone.out("pgrep -f 'sleep 91234'") == pid
    assert phone.out("pgrep -l -f 91234") == f"{pid} sleep"
    phone.out("pkill -f 91234")
    assert phone.run("pgrep -f 91234").status == 1


def test_cpusets_limit_the_cores_of_a_process(start_phone: StartPhone) -> None:
    phone = start_phone()
    pid = phone.out("setsid taskset f0 sleep 9000 >/dev/null 2>&1 & echo $!")
    allowed = f"grep Cpus_allowed: /proc/{pid}/status | cut -f2"
    assert (phone.out(allowed), phone.out(f"cat /proc/{pid}/cpuset")) == ("f0", "/")
    assert phone.out("cat /dev/cpuset/top-app/cpus") == "0-7"
    assert phone.run(f"echo {pid} > /dev/cpuset/background/tasks").status == 1
    phone.root("echo 0-1 > /dev/cpuset/background/cpus")
    phone.root(f"echo {pid} > /dev/cpuset/background/tasks")
    assert (phone.out(allowed), phone.out(f"cat /proc/{pid}/cpuset")) == ("03", "/background")
    assert pid in phone.out("cat /dev/cpuset/background/tasks").split()
    assert phone.run(f"taskset -p f0 {pid}").status == 1
    phone.out(f"taskset -p 2 {pid}")
    assert phone.out(allowed) == "02"
    assert phone.run("su -c 'echo 9-12 > /dev/cpuset/background/cpus'").status == 1
    assert phone.run("su -c 'echo 99999 > /dev/cpuset/background/tasks'").status == 1


def test_uclamp_values_are_stored_and_checked(start_phone: StartPhone) -> None:
    phone = start_phone("xiaomi-mi-9")
    node = "/dev/cpuctl/top-app/cpu.uclamp.min"
    assert phone.out(f"cat {node}") == "0.00"
    phone.root(f"echo 50 > {node}")
    assert phone.out(f"cat {node}") == "50.00"
    assert phone.run(f"su -c 'echo 101 > {node}'").status == 1
    assert phone.out("cat /dev/cpuctl/top-app/cpu.uclamp.max") == "max"
