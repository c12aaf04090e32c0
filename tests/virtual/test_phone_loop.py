"""Phone time is spent by waiting alone: what a process computes takes none, at any speed."""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from agent.virtual.fleet_server import FleetConfig, FleetServer
from agent.virtual.phone_clock import PhoneClock
from agent.virtual.phone_loop import process_context, run_phones
from tests.virtual.adb_host import AdbHost, AdbPhone
from tests.virtual.conftest import StartPhone
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.cli_options import EVENT_TIME

HOME = "/data/local/tmp"
ROUNDING_S = 0.011  # /proc/uptime counts in 10 ms
LOOP = "i=0; while [ $i -lt 50 ]; do i=$((i+1)); {body}; done"
TIMED = "read -r a r </proc/uptime; {script}; read -r b r </proc/uptime; echo $a $b"

Result = TypeVar("Result")


def phone_seconds(printed: str) -> float:
    start, end = printed.split()
    return float(end) - float(start)


@pytest.mark.parametrize("speed", [100.0, EVENT_TIME])
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(LOOP.format(body="sleep 0.02"), id="loop"),
        pytest.param(LOOP.format(body="sh -c 'sh -c \"sleep 0.02\"'"), id="nested shells"),
        pytest.param(LOOP.format(body="echo x | sleep 0.02 | cat"), id="pipeline"),
        pytest.param(
            f"{{ {LOOP.format(body='sleep 0.02; echo x')}; }} | cat >/dev/null", id="piped loop"
        ),
        pytest.param(
            f"{{ {LOOP.format(body='sleep 0.02; echo x')}; }} | while read -r x; do :; done",
            id="piped into a loop",
        ),
        pytest.param(LOOP.format(body="sleep 0.02 & sleep 0.01 & wait"), id="background"),
        pytest.param(LOOP.format(body="x=$(sleep 0.02; cat /proc/uptime)"), id="substitution"),
        pytest.param(f"( {LOOP.format(body='setsid sleep 0.02')} )", id="sessions"),
        pytest.param(f"for x in 1 2 3 4 5; do {LOOP.format(body='sleep 0.004')}; done", id="loops"),
    ],
)
def test_a_script_takes_as_long_as_it_waits(
    start_phone: StartPhone, script: str, speed: float
) -> None:
    phone = start_phone(speed=speed)
    assert phone_seconds(phone.out(TIMED.format(script=script))) == pytest.approx(
        1.0, abs=ROUNDING_S
    )


@pytest.mark.parametrize(
    "start", ["sh {file}", "sh {file} & wait", "setsid sh {file} </dev/null &"]
)
def test_a_script_that_runs_alone_takes_as_long_as_it_waits(
    start_phone: StartPhone, start: str
) -> None:
    phone = start_phone()
    phone.put(f"{HOME}/script.sh", TIMED.format(script=LOOP.format(body="sleep 0.02")).encode())
    phone.out(f"{start.format(file=f'{HOME}/script.sh >{HOME}/times 2>&1')}")
    phone.sleep_until(lambda: phone.out(f"cat {HOME}/times") != "", "the script has ended")
    assert phone_seconds(phone.out(f"cat {HOME}/times")) == pytest.approx(1.0, abs=ROUNDING_S)


def test_processes_that_wait_at_once_wake_up_in_order(start_phone: StartPhone) -> None:
    names = (3, 1, 2)
    script = "".join(f"{{ sleep 0.{name}; cat /proc/uptime; }} & " for name in names) + "wait"
    printed = start_phone().out(script)
    moments = [float(line.split()[0]) for line in printed.splitlines()]
    steps = [later - sooner for sooner, later in itertools.pairwise(moments)]
    assert steps == pytest.approx([0.1, 0.1], abs=ROUNDING_S)


def test_a_busy_loop_does_not_stop_the_time(start_phone: StartPhone) -> None:
    script = "{ sleep 2; : >/data/local/tmp/here; } & until [ -e /data/local/tmp/here ]; do :; done"
    printed = start_phone().out(TIMED.format(script=script))
    assert phone_seconds(printed) == pytest.approx(2.0, abs=ROUNDING_S)


def test_rounds_without_a_wait_take_little_time(start_phone: StartPhone) -> None:
    script = "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; for x in 1 2 3; do :; done"
    printed = start_phone().out(TIMED.format(script=script))
    assert phone_seconds(printed) == pytest.approx(1.0, abs=ROUNDING_S)


def test_processes_that_cannot_run_do_not_stop_the_time(start_phone: StartPhone) -> None:
    """One waits for the host's input, one is stopped, one was killed while it computed."""
    phone = start_phone()
    shell = phone.shell()
    shell.line("read -r x & sleep 1000 & kill -STOP $!")
    killed = phone.host.open_service(phone.address, "shell,v2,raw:while :; do :; done")
    killed.close()
    assert phone_seconds(phone.out(TIMED.format(script="sleep 5"))) == pytest.approx(
        5.0, abs=ROUNDING_S
    )
    assert shell.line("echo here") == (0, "here\n")


def test_a_phone_that_computes_does_not_stop_the_others(host: AdbHost) -> None:
    config = FleetConfig(("meizu-16t", "xiaomi-mi-9"), speed=EVENT_TIME)
    with serve_fleet_in_thread(config) as (_, addresses):
        for address in addresses:
            assert "connected" in host.adb("connect", address.address).out
        busy, idle = (AdbPhone(host, address.address) for address in addresses)
        with busy.host.open_service(busy.address, "shell,v2,raw:while :; do :; done"):
            before = busy.uptime()
            assert idle.out("sleep 20; echo done") == "done"
            assert busy.uptime() > before
        for address in addresses:
            host.adb("disconnect", address.address)


def run_process(work: Coroutine[object, object, Result], clock: PhoneClock) -> Result:
    """Run a task as a process of a phone; afterwards its clock must continue."""

    async def main() -> Result:
        task = asyncio.get_running_loop().create_task(work, context=process_context(clock))
        try:
            return await task
        finally:
            await clock.sleep(1.0)

    return run_phones(main())


def test_the_clock_continues_after_an_error() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("expected")

    clock = PhoneClock(speed=100.0)
    with pytest.raises(ValueError, match="expected"):
        run_process(fail(), clock)
    assert clock.now >= 1.0


def test_the_clock_continues_after_a_callback_that_fails() -> None:
    failures: list[BaseException] = []

    async def call_failing() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, details: failures.append(details["exception"]))
        loop.call_soon(int, "not a number")
        await asyncio.sleep(0)

    clock = PhoneClock(speed=100.0)
    run_process(call_failing(), clock)
    assert [type(error) for error in failures] == [ValueError]
    assert clock.now >= 1.0


@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_the_clock_continues_after_a_cancellation(rounds: int) -> None:
    clock = PhoneClock(speed=100.0)

    async def cancel_child() -> bool:
        child = asyncio.ensure_future(clock.sleep(1000.0))
        for _ in range(rounds):
            await asyncio.sleep(0)
        child.cancel()
        await asyncio.wait([child])
        return child.cancelled()

    assert run_process(cancel_child(), clock)
    assert 1.0 <= clock.now < 1000.0


def test_processes_compute_in_no_time() -> None:
    """Ten processes that wake up together each see the time that they waited for."""
    clock = PhoneClock(speed=500.0)

    async def wake_up() -> list[float]:
        start = clock.catch_up()

        async def process() -> float:
            await clock.sleep(3.0)
            sum(range(200_000))  # some milliseconds of the host, seconds at this speed
            await asyncio.sleep(0)
            return clock.catch_up() - start

        return list(await asyncio.gather(*(process() for _ in range(10))))

    assert run_process(wake_up(), clock) == [pytest.approx(3.0)] * 10


def test_an_action_that_is_due_does_not_wait_for_the_processes() -> None:
    """A shell that runs one line after another must not delay a fault that starts at once."""
    clock = PhoneClock(speed=100.0)

    async def compute_until_it_ran() -> tuple[bool, bool]:
        ran: list[str] = []
        now = clock.catch_up()
        clock.schedule(now, lambda: ran.append("now"), wakes_host=True)
        clock.schedule(now + 1.0, lambda: ran.append("later"), wakes_host=True)
        for _ in range(1000):
            await asyncio.sleep(0)
        return "now" in ran, "later" in ran

    assert run_process(compute_until_it_ran(), clock) == (True, False)


def test_phones_need_their_event_loop() -> None:
    with pytest.raises(AssertionError):
        asyncio.run(FleetServer(FleetConfig()).start())
