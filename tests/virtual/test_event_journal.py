"""The journal: what it records, and that the phone cannot access it."""

from pathlib import Path

from tests.virtual.conftest import JournalReader, StartPhone
from tests.virtual.sample_plans import HOME, RUNNER, a_plan

POLICY = "/sys/devices/system/cpu/cpufreq/policy4"


def test_every_service_is_recorded(start_phone: StartPhone, journal_events: JournalReader) -> None:
    phone = start_phone()
    phone.out("true")
    phone.put("/data/local/tmp/x", b"content")
    assert [entry["name"] for entry in journal_events("adb_service")] == [
        "shell,v2,raw:true",
        "sync:",
    ]
    (pushed,) = journal_events("push_end")
    assert tuple(pushed[key] for key in ("path", "bytes", "error", "text")) == (
        "/data/local/tmp/x",
        7,
        None,
        "content",
    )


def test_every_process_is_recorded_with_its_cores_and_clocks(
    start_phone: StartPhone, journal_events: JournalReader
) -> None:
    phone = start_phone()
    phone.root(f"echo performance > {POLICY}/scaling_governor")
    phone.out("taskset f0 sleep 1")
    execs = [
        entry for entry in journal_events("process_start", "process_exec") if entry["mask"] == "f0"
    ]
    assert execs
    assert execs[-1]["argv"] == ["sleep", "1"]
    clocks = execs[-1]["clocks"]
    assert isinstance(clocks, dict)
    assert clocks["policy4"] == 2419200
    started = {entry["pid"] for entry in journal_events("process_start")}
    assert {entry["pid"] for entry in journal_events("process_stop")} == started


def test_a_move_to_other_cores_is_recorded(
    start_phone: StartPhone, journal_events: JournalReader
) -> None:
    phone = start_phone()
    pid = int(phone.out("setsid sleep 5000 >/dev/null 2>&1 & echo $!"))
    phone.out(f"taskset -p 3 {pid}")
    moved = [entry for entry in journal_events("process_affinity") if entry["pid"] == pid]
    assert [entry["mask"] for entry in moved] == ["3"]
    phone.root(f"echo {pid} > /dev/cpuset/background/tasks")
    (write,) = journal_events("sysfs_write")
    assert (
        write["path"],
        write["text"],
        write["uid"],
    ) == ("/dev/cpuset/background/tasks", str(pid), 0)


def test_every_lock_and_fence_is_recorded(
    start_phone: StartPhone, journal_events: JournalReader
) -> None:
    phone = start_phone()
    phone.out("cd /data/local/tmp; echo '7 host-a' > fence; mkdir lock; mv fence fence.old")
    phone.out("rm -r /data/local/tmp/lock; ln -s fence.old /data/local/tmp/now")
    writes = [entry for entry in journal_events("file_write") if entry["operation"] == "write"]
    assert [(entry["path"], entry["text"], entry["uid"]) for entry in writes] == [
        ("/data/local/tmp/fence", "7 host-a\n", 2000)
    ]
    paths = {
        str(entry["event"]): entry["path"]
        for entry in journal_events("directory_create", "file_remove", "file_rename")
    }
    assert paths == {
        "directory_create": "/data/local/tmp/lock",
        "file_remove": "/data/local/tmp/lock",
        "file_rename": "/data/local/tmp/fence",
    }
    assert [entry["target"] for entry in journal_events("link_create")] == ["fence.old"]


def test_a_refused_write_is_recorded_with_its_reason(
    start_phone: StartPhone, journal_events: JournalReader
) -> None:
    phone = start_phone()
    phone.run(f"su -c 'echo nonsense > {POLICY}/scaling_governor'")
    (write,) = journal_events("sysfs_write")
    assert (
        write["error"],
        write["old"],
        write["new"],
    ) == ("Invalid argument", "schedutil", "schedutil")


def test_a_run_is_recorded_from_start_to_stop(
    start_phone: StartPhone, journal_events: JournalReader
) -> None:
    phone = start_phone()
    phone.put(f"{HOME}/runner", RUNNER, 0o755)
    phone.put(f"{HOME}/plan", a_plan())
    phone.out(f"mkdir {HOME}/dir; cd {HOME}; taskset f0 ./runner run plan dir --seconds 20")
    (start,), (stop,) = journal_events("run_start"), journal_events("run_stop")
    assert (start["mask"], start["pid"]) == ("f0", stop["pid"])
    assert float(str(stop["model_s"])) - float(str(start["model_s"])) > 15


def test_the_journal_is_not_accessible_from_the_phone(
    start_phone: StartPhone, journal: Path
) -> None:
    phone = start_phone()
    before = list(journal.glob("*.jsonl"))
    assert before
    assert phone.run(f"ls {journal}").status == 1
    phone.run(f"su -c 'rm -rf {journal} /data/local/tmp'")
    assert list(journal.glob("*.jsonl")) == before
