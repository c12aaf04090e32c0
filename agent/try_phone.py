"""The first look at a phone: checks in the order in which they fail, its noise, and one training.

It ends with a number and its verdict, whatever the phone refuses; every obstacle is one sentence
with what to do. What it learns counts as `farm phone commission --quick`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from agent.collect.shell_view import AWAKE, ShellView, parse_screen
from agent.commission import commission_phone, conditions
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.phone_driver import Phone
from agent.phone.phone_memory import load_phone_memory
from agent.phone.phone_snapshot import read_battery_pct, take_snapshot
from agent.phone.probe import probe
from agent.phone.shell_command import ShellCommand
from agent.phone.vendor_switches import vendor_switches
from agent.prepare.quiesce import QUIET_SETTINGS
from agent.restore.fence import held_fence
from agent.restore.restore_leftovers import restore_leftovers
from workloads.catalogue import bind
from workloads.protocol.condition import Condition
from workloads.protocol.faults import FarmError, PhoneTrouble
from workloads.protocol.messages import Job, Report, RunId
from workloads.protocol.phone_facts import FREE
from workloads.protocol.reason_advice import REASON_ADVICE
from workloads.protocol.verdict import Validity
from workloads.text import safe_text

TRAINING = bind("mlp-4", {})
FREE_KB_MIN = 200 * 1024
_TRIAL = f"tr-{1:016x}"  # no trial of a sweep
_DF = re.compile(r"^\S+\s+\d+\s+\d+\s+(\d+)\s", re.MULTILINE)
_DENIED = re.compile(r"SecurityException|[Pp]ermission [Dd]enial|not allowed")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: what was found, and what to do where it is an obstacle."""

    name: str
    good: bool
    found: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """One line."""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.name:<12}{'ok' if self.good else 'no':<4}{self.found}{remedy}"


@dataclass
class Tryout:
    """What was found; `report` is that of the last training."""

    model: str = "the phone"
    checks: list[Check] = field(default_factory=list)
    report: Report | None = None
    condition: Condition | None = None  # that suits this phone
    number: str = ""
    answer: str = ""

    @property
    def is_valid(self) -> bool:
        """Whether the number counts."""
        verdict = self.report.verdict if self.report is not None else None
        return verdict is not None and verdict.validity is Validity.VALID


def try_phone(phone: Phone, context: LaneContext, say: Say) -> Tryout:
    """Try a phone from its link to its first training; say every finding as it comes."""
    tried = Tryout()

    def add(check: Check) -> None:
        tried.checks.append(check)
        say(check.text)

    try:
        for check in _first_checks(phone, context):
            add(check)
        tried.model = phone.facts.model
        battery = _check_battery(phone)
        add(battery)
        tried.condition = _condition(phone)
        if battery.good:
            say("learning how much this phone varies: short runs, about two minutes")
            context = replace(context, canary=True)
            learned, text = commission_phone(phone, context, quick=True)
            add(Check("noise", learned, text))
        say("training mlp-4 for a few seconds")
        _train(phone, context, tried)
    except FarmError as error:
        add(Check("stopped", False, safe_text(error, 300)))
    tried.answer = _answer(tried)
    return tried


def _first_checks(phone: Phone, context: LaneContext) -> Iterator[Check]:
    """From the link to what the probe found."""
    maker, abi = (
        phone.shell_checked(["getprop", name]).strip()
        for name in ("ro.product.manufacturer", "ro.product.cpu.abi")
    )
    yield Check("link", True, "the phone answers")
    yield _check_storage(phone)
    facts = probe(phone, context.runner_for)
    phone.memory = load_phone_memory(context.state_dir, facts.serial)
    restore_leftovers(phone, context.state_dir)
    if facts.runner_error is not None:
        yield Check("program", False, facts.runner_error)
        raise PhoneTrouble("no training without that program")
    yield Check("program", True, f"{safe_text(abi, 40)}, the program for training starts")
    usual = f"allow root for the shell in {facts.root_manager}" * bool(facts.root_manager)
    root = "commands run as root" if facts.rooted else facts.uncontrolled[0]
    remedy = "" if facts.rooted else usual or "that is the usual case"
    yield Check("root", facts.rooted, root, remedy)
    yield _check_settings(phone, maker)
    yield _check_screen(phone, maker)
    zones, temp_c = facts.cpu_zones, take_snapshot(phone).temp_c
    shown = (
        f"{len(zones)} CPU zone{'s' * (len(zones) != 1)}, the hottest at {temp_c:.1f} °C"
        if temp_c is not None
        else ""
    )
    hidden = next((text for text in facts.uncontrolled if "temperature" in text), "not shown")
    yield Check("heat", bool(shown), shown or hidden)
    opencl = facts.opencl
    none = "no OpenCL device: training uses the processor"
    yield Check("OpenCL", opencl is not None, opencl.name if opencl is not None else none)


def _check_storage(phone: Phone) -> Check:
    found = _DF.search(phone.shell(["df", "-k", "/data/local/tmp"]).text)
    if found is None:
        return Check("storage", True, "the phone does not show how much is free")
    free_kb = int(found[1])
    text = f"{free_kb / 2**20:.1f} GB free"
    good = free_kb >= FREE_KB_MIN
    return Check("storage", good, text, "" if good else "delete files until 0.2 GB are free")


def _check_settings(phone: Phone, maker: str) -> Check:
    """Write a setting once more with the value that it has: that changes nothing."""
    listed = phone.shell(["settings", "list", "global"]).text
    values = dict(line.partition("=")[::2] for line in listed.splitlines())
    known = (item.name for item in QUIET_SETTINGS if item.namespace == "global")
    name = next((name for name in known if name in values), None)
    if name is None:
        return Check("settings", False, "Android's settings cannot be read")
    put = phone.shell(["settings", "put", "global", name, values[name]])
    if put.status == 0 and not _DENIED.search(put.text):
        return Check("settings", True, "adb may change settings; all are restored after a run")
    remedy = vendor_switches(maker).settings
    return Check("settings", False, "this phone refuses settings by adb", remedy)


def _check_screen(phone: Phone, maker: str) -> Check:
    before = _screen(phone)
    if before.wakefulness not in {"", AWAKE}:
        phone.shell(["input", "keyevent", "KEYCODE_WAKEUP"])
    after = _screen(phone)
    lock = ", locked" if after.locked else ""
    if after.wakefulness == AWAKE:
        woken = ", woken by adb" if before.wakefulness != AWAKE else ""
        return Check("screen", True, f"on{woken}{lock}")
    if not after.wakefulness:
        return Check("screen", True, "the phone does not show whether it is on")
    remedy = f"press the power button; {vendor_switches(maker).settings}"
    return Check("screen", False, f"off ({after.wakefulness}), and adb cannot wake it", remedy)


def _screen(phone: Phone) -> ShellView:
    dumps = [ShellCommand(["dumpsys", *words]) for words in (["power"], ["window", "policy"])]
    return parse_screen(*(result.text for result in phone.shell_batch(dumps)))


def _check_battery(phone: Phone) -> Check:
    level = read_battery_pct(phone, take_snapshot(phone))
    least = Condition().battery_min_pct
    if level is None:
        return Check("battery", True, "the phone does not show its level")
    cut = "; charging is stopped during runs" if phone.facts.charging is not None else ""
    if level >= least:
        return Check("battery", True, f"{level} %{cut}")
    remedy = f"charge it to {least} % before a sweep; until then its noise is not learned"
    return Check("battery", False, f"{level} %", remedy)


def _condition(phone: Phone) -> Condition:
    """The condition of a sweep that this phone can meet."""
    facts = phone.facts
    usual = next(conditions(facts, quick=True))
    freq = "fixed" if not facts.clocks_writable and facts.fixed_performance else usual.freq
    return Condition(cores=usual.cores, freq=freq)


def _train(phone: Phone, context: LaneContext, tried: Tryout) -> None:
    """Train from any temperature: twice if the first run does not count, at last more simply."""
    first = next(conditions(phone.facts, quick=True))
    any_level = first.model_copy(update={"battery_min_pct": 0, "time_min_s": None})
    simple: dict[str, object] = {"cores": "all1", "freq": FREE, "start_temp_max_c": None}
    for attempt, changes in enumerate(({}, {}, simple), start=1):
        job = Job(
            run=RunId(trial=_TRIAL, repeat=0, attempt=attempt),
            phone=phone.facts.serial,
            fence=held_fence(phone),
            lease_timeout_s=60,
            case=TRAINING,
            condition=any_level.model_copy(update=changes),
            telemetry=False,
        )
        report = run_attempt(job, phone, context).report
        values = {metric.name: metric.value for metric in report.metrics}
        if report.fault is not None or "step_ms" not in values:
            text = report.fault.text if report.fault is not None else "it measured no time"
            tried.checks.append(Check("training", False, text))
            continue
        batch, cores = TRAINING.parameters.get("batch_size", 1), job.condition.cores
        tried.report = report
        tried.number = f"{values['step_ms']:.3g} ms per step of {batch} samples on {cores}"
        if tried.is_valid or attempt > 1:
            return


def _answer(tried: Tryout) -> str:
    """The last lines: the number with its verdict."""
    report = tried.report
    if report is None or report.verdict is None or not tried.number:
        why = next((check.found for check in reversed(tried.checks) if not check.good), "")
        return f"{tried.model}: no number: {why}"
    lines = [f"{tried.model}: mlp-4 takes {tried.number}: {report.verdict.validity}"]
    for reason in report.verdict.reasons:
        lines.append(f"  {reason.text}")
        if reason.validity is not Validity.VALID:
            lines.append(f"    {REASON_ADVICE[reason.code]}")
    return "\n".join(lines)


def sweep_text(tried: Tryout, serial: str) -> str:
    """A sweep file with settings that suit the phone; empty if it cannot train."""
    condition = tried.condition
    if condition is None:
        return ""
    return f"""# Written by `farm phone try` for a {tried.model}: settings that this phone can meet.
farm: 1
name: {sweep_name(tried.model)}
workload: mlp-4
phones: ["{serial}"]
matrix:
  batch_size: [32, 128]
conditions:
  protocol: cold
  cores: {condition.cores}
  freq: {condition.freq}
  start_temp_max_c: {condition.start_temp_max_c}
repeat: 5
"""


def sweep_name(model: str) -> str:
    """A name that files and sweeps accept."""
    plain = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    return f"try-{plain or 'phone'}"[:40].rstrip("-")
