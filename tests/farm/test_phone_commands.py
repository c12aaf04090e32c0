"""`farm phone`: a phone is shown, checked, put back, kept from work and let go, over the queue."""

from tests.farm.conftest import Farm, wait_for


def test_a_phone_is_looked_after_from_the_middle(farm: Farm) -> None:
    serial = next(phone for phone in farm.idle() if phone.startswith("VM16T"))
    shown = farm.command("phone", "show", serial)
    assert (0, True) == (
        shown.returncode,
        "holds  charging is cut by input_suspend" in shown.stdout,
    )
    checked = farm.command("phone", "check", serial)
    assert (0, True) == (checked.returncode, "answers, is as it should be" in checked.stdout)
    restored = farm.command("phone", "restore", serial)
    assert (0, True) == (restored.returncode, "nothing to put back" in restored.stdout)
    kept = farm.command("phone", "quarantine", serial, "--why", "its glass is broken")
    assert 0 == kept.returncode, kept.stderr
    assert "quarantined: its glass is broken" in farm.command("phone", "show", serial).stdout
    assert 0 == farm.command("phone", "release", serial).returncode
    wait_for(lambda: farm.phone(serial).health == "good", "it is released")
    assert 2 == farm.command("phone", "check", "NOBODY").returncode


def test_a_phone_without_opencl_says_so_when_it_is_tuned(farm: Farm) -> None:
    serial = farm.idle()[0]
    tuned = farm.command("kernels", "tune", "--sizes", "64", "--phone", serial)
    assert (5, "") == (tuned.returncode, tuned.stdout)
    assert f"{serial}: its vendor's library shows no OpenCL device" in tuned.stderr
    assert "good" == farm.phone(serial).health
    many = farm.command("kernels", "tune", "--sizes", "8:4104:8", "--phone", serial)
    assert (2, True) == (many.returncode, "at most 16 of them" in many.stderr)
