"""`farm virtual`: lists profiles and runs virtual phones until interrupted."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent.virtual.mischief.cli import mischief, mischief_options
from agent.virtual.twin.cli import (
    build_command,
    calibrate_command,
    curve_command,
    estimate_durations_command,
    predict_command,
)
from workloads.cli_options import PORT, SEED, PhoneSpeed

if TYPE_CHECKING:
    from agent.virtual.fleet_server import FleetConfig, PhoneAddress


@click.group(name="virtual")
def virtual() -> None:
    """Run virtual phones: the real ADB protocol, simulated physics.

    \b
    Examples:
      farm virtual list
      farm virtual up meizu-16t --speed 50
    """


virtual.add_command(mischief)
virtual.add_command(predict_command)
virtual.add_command(curve_command)
virtual.add_command(build_command)
virtual.add_command(estimate_durations_command)
virtual.add_command(calibrate_command)


@virtual.command(name="list")
def list_profiles() -> None:
    """List the phone models.

    The last column says what was measured: the phone itself (calibrated), only cores of its SoC
    (extrapolated), or nothing (uncalibrated); and the error of its numbers, from the best to the
    worst condition that was tested. 'farm virtual predict' prints it for one
    condition.

    \b
    Example:
      farm virtual list
    """
    from agent.virtual.profiles import load_profile, profile_ids
    from agent.virtual.twin.simulated_provenance import error_ranges

    for profile_id in profile_ids():
        profile = load_profile(profile_id)
        cores = "+".join(str(len(cluster.cpus)) for cluster in profile.cluster)
        click.echo(
            f"{profile.id:<18} {profile.name:<24} {profile.soc:<9} {cores:<6} "
            f"Android {profile.android:<3} {'rooted' if profile.rooted else 'stock':<7} "
            f"{profile.calibration}"
            + "".join(
                f", {name} ±{low:.0%} to {high:.0%}"
                for name, (low, high) in error_ranges(profile).items()
            )
        )


@virtual.command()
@click.argument("profiles", nargs=-1, metavar="[PROFILE[:VARIANT]..[=SERIAL]]...")
@click.option("--all", "all_profiles", is_flag=True, help="Run one phone of every profile.")
@click.option(
    "--fleet",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="TOML file with [[phone]] tables: profile, serial, count, speed, noise and variants.",
)
@click.option("--phones", type=click.IntRange(1, 1000), help="Number of phones of mixed models.")
@click.option(
    "--count",
    default=1,
    show_default=True,
    type=click.IntRange(1, 300),
    help="Number of phones per profile.",
)
@click.option("--stock", is_flag=True, help="Run all phones unrooted, as sold.")
@click.option("--native", is_flag=True, help="Run all commands on this host, with its sensors.")
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    type=PhoneSpeed(0.1, 10_000),
    metavar="N|events",
    help="Speed of the phones' clocks relative to real time, or as fast as this computer can.",
)
@click.option(
    "--port-base",
    default=0,
    type=click.IntRange(0, PORT.max),
    help="First TCP port; 0 selects ephemeral ports.",
)
@click.option(
    "--journal",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for the phones' own event journals.",
)
@click.option(
    "--adb-key",
    "adb_keys",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Public key (adbkey.pub) of a host that may connect; all others are unauthorized.",
)
@click.option(
    "--seed",
    type=SEED,
    default=0,
    show_default=True,
    help="Random seed for noise and differences between units.",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write phone addresses here when ready; existing entries keep their ports.",
)
@mischief_options
def up(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    profiles: tuple[str, ...],
    all_profiles: bool,
    fleet: Path | None,
    phones: int | None,
    count: int,
    stock: bool,
    native: bool,
    speed: float,
    port_base: int,
    journal: Path | None,
    adb_keys: tuple[Path, ...],
    seed: int,
    ready_file: Path | None,
    mischief_script: Path | None,
    control: Path | None,
) -> None:
    """Run phones until interrupted.

    Prints SERIAL PROFILE ADDRESS of each phone. A PROFILE that ends with .toml is a facts file of
    'farm phone capture': the layout of that phone, with the physics of a similar model.

    A VARIANT is stock (no root), userdebug (adb root works), no_opencl (the GPU cannot compute),
    noisy (times scatter as recorded on real phones), background (an idle Android's bursts of work),
    quiet (neither of both) or native (commands run on this host).

    \b
    Examples:
      farm virtual up meizu-16t xiaomi-mi-9:stock --speed 50
      farm virtual up --fleet examples/virtual_lab.toml --mischief examples/mischief.toml
    """
    from dataclasses import replace

    from agent.virtual.fleet_server import FleetConfig, read_ports
    from agent.virtual.phone_loop import run_phones
    from agent.virtual.phone_specs import draw_mixed_phones, parse_phone_words, read_fleet_file
    from agent.virtual.profiles import profile_ids

    try:
        specs = parse_phone_words(profile_ids() if all_profiles else profiles, count)
        specs += read_fleet_file(fleet) if fleet else ()
        specs += draw_mixed_phones(phones, seed) if phones else ()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not specs:
        raise click.UsageError(
            "no phones given; name a profile or use --all, --fleet FILE or --phones N; "
            f"profiles are {', '.join(profile_ids())}"
        )
    config = FleetConfig((), 1, speed, port_base, journal, seed, specs, stock, native)
    config = replace(config, mischief=mischief_script, control=control, adb_keys=adb_keys)
    try:
        config = replace(config, ports=read_ports(ready_file) if ready_file else {})
        run_phones(_serve(config, ready_file))
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


async def _serve(config: "FleetConfig", ready_file: Path | None) -> None:
    import asyncio
    import signal

    from agent.virtual.fleet_server import FleetServer, write_ready_file

    fleet = FleetServer(config)
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop_requested.set)
    try:
        addresses = await fleet.start()
        for address in addresses:
            click.echo(address.summary())
        if ready_file is not None:
            write_ready_file(ready_file, addresses)
        click.echo(_connect_hint(addresses), err=True)
        await stop_requested.wait()
    finally:
        await fleet.stop()


def _connect_hint(addresses: "list[PhoneAddress]") -> str:
    command = f"adb connect {addresses[0].address}"
    if len(addresses) == 1:
        return f"connect with: {command}"
    return f"{len(addresses)} phones; connect each by its address: {command}"
