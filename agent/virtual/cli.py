"""`farm virtual`: list the profiles, keep phones up until told to stop."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent.virtual.mischief.cli import mischief, mischief_options
from agent.virtual.twin.cli import calibrate_command, foresee_command, predict_command

if TYPE_CHECKING:
    from agent.virtual.shelf import PhoneAddress, ShelfPlan


@click.group(name="virtual")
def virtual() -> None:
    """Phones that are not there: real ADB, modelled physics."""


virtual.add_command(mischief)
virtual.add_command(predict_command)
virtual.add_command(foresee_command)
virtual.add_command(calibrate_command)


@virtual.command(name="list")
def list_profiles() -> None:
    """List the models of phone."""
    from agent.virtual.profiles import load_profile, profile_ids

    for profile_id in profile_ids():
        profile = load_profile(profile_id)
        cores = "+".join(str(len(cluster.cpus)) for cluster in profile.cluster)
        click.echo(
            f"{profile.id:<17} {profile.name:<20} {profile.soc:<9} {cores:<6} "
            f"Android {profile.android:<3} {'rooted' if profile.rooted else 'stock':<7} "
            f"{profile.standing}"
        )


@virtual.command()
@click.argument("profiles", nargs=-1, metavar="[PROFILE[:MANNER]..[=SERIAL]]...")
@click.option("--all", "everything", is_flag=True, help="One of every profile.")
@click.option(
    "--fleet",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="TOML list of phones: profile, serial, count, speed, stock, userdebug, native.",
)
@click.option("--phones", type=click.IntRange(1, 1000), help="So many phones of mixed models.")
@click.option(
    "--count", default=1, show_default=True, type=click.IntRange(1, 300), help="Phones per profile."
)
@click.option("--stock", is_flag=True, help="Unrooted phones, as they are sold.")
@click.option("--native", is_flag=True, help="Commands really run on this host; no physics.")
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.01, 10_000),
    help="Model seconds per second.",
)
@click.option("--port-base", default=0, help="First port; ephemeral ports where absent.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for what really happened.",
)
@click.option(
    "--adb-key",
    "adb_keys",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="An adbkey.pub; hosts with another key are unauthorized.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of noise and unit spread.")
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON, written once all phones listen; those it names listen where they did.",
)
@mischief_options
def up(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    profiles: tuple[str, ...],
    everything: bool,
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
    """Run phones until interrupted; one line each: SERIAL PROFILE ADDRESS.

    A MANNER is stock (no root), userdebug (adb root works) or native (commands really run here).
    """
    import asyncio
    from dataclasses import replace

    from agent.virtual.profiles import profile_ids
    from agent.virtual.shelf import ShelfPlan, ports_of
    from agent.virtual.specs import mixed, read_fleet, read_words

    try:
        specs = read_words(profile_ids() if everything else profiles, count)
        specs += read_fleet(fleet) if fleet else ()
        specs += mixed(phones, seed) if phones else ()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not specs:
        raise click.UsageError(
            "name at least one profile, or say --all, --fleet FILE or --phones N; "
            f"there are {', '.join(profile_ids())}"
        )
    plan = ShelfPlan((), 1, speed, port_base, journal, seed, specs, stock, native)
    plan = replace(plan, mischief=mischief_script, control=control, adb_keys=adb_keys)
    try:
        plan = replace(plan, ports=ports_of(ready_file) if ready_file else {})
        asyncio.run(_serve(plan, ready_file))
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


async def _serve(plan: "ShelfPlan", ready_file: Path | None) -> None:
    import asyncio
    import signal

    from agent.virtual.shelf import Shelf, write_ready_file

    shelf = Shelf(plan)
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    try:
        addresses = await shelf.start()
        for address in addresses:
            click.echo(address.line())
        if ready_file is not None:
            write_ready_file(ready_file, addresses)
        click.echo(_how_to_connect(addresses), err=True)
        await told.wait()
    finally:
        await shelf.stop()


def _how_to_connect(addresses: "list[PhoneAddress]") -> str:
    one = f"adb connect {addresses[0].address}"
    if len(addresses) == 1:
        return f"connect with: {one}"
    return f"{len(addresses)} phones; connect each by its address: {one}"
