"""`farm phone`: shows, checks, restores, quarantines and releases a phone over the job queue."""

from tests.farm.conftest import Farm, wait_for


def test_a_phone_is_controlled_over_the_queue(farm: Farm) -> None:
    serial = next(phone for phone in farm.idle_phones() if phone.startswith("VM16T"))
    shown = farm.command("phone", "show", serial)
    assert (shown.returncode, "input_suspend" in shown.stdout) == (0, True)
    checked = farm.command("phone", "check", serial)
    assert (checked.returncode, serial in checked.stdout) == (0, True)
    restored = farm.command("phone", "restore", serial)
    assert (restored.returncode, "had nothing to restore" in restored.stdout) == (0, True)
    quarantined = farm.command("phone", "quarantine", serial, "--why", "broken screen")
    assert quarantined.returncode == 0, quarantined.stderr
    assert "quarantined: broken screen" in farm.command("phone", "show", serial).stdout
    assert farm.command("phone", "release", serial).returncode == 0
    wait_for(lambda: farm.phone(serial).health == "good", "the phone is released")
    assert farm.command("phone", "check", "UNKNOWN").returncode == 2


def test_a_virtual_phone_cannot_be_tuned(farm: Farm) -> None:
    serial = farm.idle_phones()[0]
    tuned = farm.command("kernels", "tune", "--sizes", "64", "--phone", serial)
    assert (tuned.returncode, tuned.stdout) == (5, "")
    assert f"{serial}: " in tuned.stderr
    assert farm.phone(serial).health == "good"
    many = farm.command("kernels", "tune", "--sizes", "8:4104:8", "--phone", serial)
    assert (many.returncode, "at most 16 sizes up to 4096" in many.stderr) == (2, True)
