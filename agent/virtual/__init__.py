"""Virtual Android phones: the device side of ADB in front, simulated physics behind it.

A virtual phone listens on a TCP port. The stock adb, the agent and third-party tools drive it as
they drive a phone: they open shells, push files, write clocks in /sys, run the training runner.
What a shell reads comes from a physical model (clocks, power, heat, throttling, battery) on a
clock that can run faster than real time.

How the folder is organised, from the outside in:

    cli.py              `farm virtual`; fleet_server.py runs the phones, phone_specs.py and
                        fleet_mix.py decide which phones there are
    virtual_phone.py    one phone: owns everything below
    phone_clock.py      phone time: every event happens at an exact moment, `speed` times faster
    phone_loop.py       the event loop: the clock is paused while a process of the phone computes
    event_journal.py    what really happened, written where the program under test cannot reach
    process_table.py, program_lookup.py, boot_state.py
                        processes, what a command name runs, properties and settings, the log
    adb/                packets, streams, host keys and the services: shell, sync, reboot, root
    shell/              lexer, parser and interpreter of the shell (a subset of mksh)
    commands/           what the shell can run: toybox and Android's own commands
    files/              the file tree; nodes of /sys, /proc and /dev/cpuset read the model
    physics/            step times, clocks, power, heat, throttling, memory pressure, battery
    runner/             the runner: obeys kernels/runner/runner.h in phone time, computes nothing
    profiles/, engines/ figures of phones and of training engines, one TOML file each
    native/             a phone whose commands really run on this host, with the host's sensors
    mischief/           fault injection: scripts, triggers, one class per kind of fault
    twin/               the model without a phone: predictions, run durations, calibration against
                        measurements

Rules: nothing here imports the rest of `agent`, and of `workloads` only `units`, `text` and
`catalogue`, because a simulator that shares code with the program under test would share its
errors. All figures of phones are in TOML files, with their sources. Time is phone time unless a
name says `host`.
"""
