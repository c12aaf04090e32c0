"""Runs a fleet of virtual phones in one process and prints the address of each."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from agent.virtual.adb.host_keys import AdbPublicKey, parse_public_key
from agent.virtual.adb.phone_server import PhoneServer
from agent.virtual.facts_layout import is_facts_file, read_layout
from agent.virtual.mischief.control_socket import ControlSocket
from agent.virtual.mischief.fleet_injector import FleetInjector
from agent.virtual.phone_loop import PhoneLoop
from agent.virtual.phone_specs import PhoneSpec, parse_phone_words
from agent.virtual.physics.phone_noise import DEFAULT_UNREST, Unrest
from agent.virtual.profiles import load_profile
from agent.virtual.virtual_phone import VirtualPhone

_NATIVE_BOOT_S = 1.0


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """Which phones to run: PROFILE[:VARIANT]..[=SERIAL] words, or specs."""

    profiles: tuple[str, ...] = ()
    count: int = 1
    speed: float = 1.0
    port_base: int = 0
    journal: Path | None = None
    seed: int = 0
    phones: tuple[PhoneSpec, ...] = ()
    stock: bool = False  # every phone of the fleet
    native: bool = False
    unrest: Unrest = DEFAULT_UNREST  # of phones that state nothing else
    mischief: Path | None = None  # path of a mischief script
    control: Path | None = None  # directory of the socket that accepts more mischief
    # public keys of the hosts that may connect; if empty, every host may
    adb_keys: tuple[Path, ...] = ()
    # port by serial number; the others get port_base or an ephemeral port
    ports: Mapping[str, int] = field(default_factory=dict)

    def specs(self) -> tuple[PhoneSpec, ...]:
        return (*parse_phone_words(self.profiles, self.count), *self.phones)


@dataclass(frozen=True, slots=True)
class PhoneAddress:
    """The address that a phone listens on."""

    serial: str
    profile: str
    address: str

    def summary(self) -> str:
        return f"{self.serial} {self.profile} {self.address}"


class FleetServer:
    """The running phones, all in one PhoneLoop."""

    def __init__(self, config: FleetConfig) -> None:
        phones = [_make_phone(spec, config) for spec in config.specs()]
        if len({phone.serial for phone in phones}) < len(phones):
            raise ValueError("two phones have the same serial number; give each its own")
        ports = [
            config.ports.get(phone.serial, config.port_base + index if config.port_base else 0)
            for index, phone in enumerate(phones)
        ]
        self.servers = [PhoneServer(phone, port) for phone, port in zip(phones, ports, strict=True)]
        if keys := [_read_key(path) for path in config.adb_keys]:
            for server in self.servers:
                server.host_keys.require_keys(*keys)
        self.mischief = FleetInjector(self.servers, config.seed)
        self._script = config.mischief
        self._control = ControlSocket(config.control, self.mischief) if config.control else None

    async def start(self) -> list[PhoneAddress]:
        assert isinstance(asyncio.get_running_loop(), PhoneLoop)
        for server in self.servers:
            await server.start()
        self.mischief.bind_to_running_loop()
        if self._script is not None:
            self.mischief.run_script(self._script)
        if self._control is not None:
            await self._control.start()
        return [
            PhoneAddress(server.phone.serial, server.phone.profile.id, f"127.0.0.1:{server.port}")
            for server in self.servers
        ]

    async def stop(self) -> None:
        if self._control is not None:
            await self._control.stop()
        self.mischief.clear()
        await asyncio.gather(*(server.stop() for server in self.servers))


def _read_key(path: Path) -> AdbPublicKey:
    key = parse_public_key(path.read_bytes())
    if key is None:
        raise ValueError(f"{path} is not an adb public key; adb writes it to adbkey.pub")
    return key


def _make_phone(spec: PhoneSpec, config: FleetConfig) -> VirtualPhone:
    is_captured = is_facts_file(spec.profile)
    profile = read_layout(Path(spec.profile)) if is_captured else load_profile(spec.profile)
    if spec.stock or config.stock:
        profile = profile.model_copy(update={"rooted": False})
    if spec.userdebug:
        build = profile.build | {"ro.debuggable": "1", "ro.build.type": "userdebug"}
        profile = profile.model_copy(update={"build": build})
    if spec.no_opencl and profile.gpu is not None:
        gpu = profile.gpu.model_copy(update={"opencl": None})
        profile = profile.model_copy(update={"gpu": gpu})
    native = spec.native or config.native
    if native:
        profile = profile.model_copy(update={"rooted": False, "boot_s": _NATIVE_BOOT_S})
    speed = spec.speed or config.speed
    seed = config.seed if spec.seed is None else spec.seed
    phone = VirtualPhone(profile, spec.unit, speed, seed, spec.serial, config.journal, native)
    phone.set_unrest(
        Unrest(
            config.unrest.noise if spec.noise is None else spec.noise,
            config.unrest.background if spec.background is None else spec.background,
        )
    )
    return phone


def write_ready_file(path: Path, addresses: Sequence[PhoneAddress]) -> None:
    """Write the addresses of all phones, atomically."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps([asdict(address) for address in addresses], indent=1) + "\n")
    temporary.replace(path)


def read_ports(ready_file: Path) -> dict[str, int]:
    """Read the ports of an earlier start, so that hosts find the phones at the same addresses."""
    if not ready_file.exists():
        return {}
    try:
        addresses = [PhoneAddress(**entry) for entry in json.loads(ready_file.read_text())]
        return {phone.serial: int(phone.address.rpartition(":")[2]) for phone in addresses}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{ready_file} is not a list of phones: {error}") from error
