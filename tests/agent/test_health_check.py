"""A phone that is looked over, put back by hand, or saved from its own heat."""

from agent.control.change import Change
from agent.control.guard import Guard, ceiling_lines, lane_file
from agent.control.health import check_up, put_back_by_hand
from agent.control.journal import Journal, Page
from agent.desk import Desk
from agent.phone.install import install_runner
from agent.phone.phone import Phone
from agent.roster import FLAPPING_S, Place
from kernels.manifest import runner_for
from tests.agent.trial import Trial, a_trial, an_impatient_agent, blamed
from tests.agent.virtual_phones import VirtualPhone
from workloads.fault import Blame

__all__ = ("a_trial", "an_impatient_agent")  # fixtures

NODE = "/sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq"


def test_a_sound_phone_passes_and_is_left_as_it_was(
    phone: Phone, there: VirtualPhone, desk: Desk
) -> None:
    good, text = check_up(phone, desk.state_dir, runner_for)
    assert good, text
    assert "answers, is as it should be and takes files" in text
    assert not there.events("setting", "sysfs", "run_start")
    assert phone.shell(["test", "-e", lane_file("restore")]).status != 0


def test_each_defect_is_named(trial: Trial) -> None:
    for kind, words, expected in (
        ("sensor", {"value": "missing"}, "no CPU"),
        ("disk_full", {}, "No space"),
        ("low_memory", {"command": "*runner* guard *", "at": "command:setsid *"}, "dead-man"),
    ):
        trial.trouble(kind, **words)
        good, text = check_up(trial.phone, trial.desk.state_dir, runner_for)
        trial.peace()
        if kind == "sensor":  # then it has no zones at all, which a probe tells by itself
            assert trial.phone.known.cpu_zones == () or not good
            continue
        assert not good, kind
        assert expected in text
    assert check_up(trial.phone, trial.desk.state_dir, runner_for)[0]


def test_what_was_left_changed_is_put_back_by_hand(
    phone: Phone, there: VirtualPhone, desk: Desk
) -> None:
    before = phone.read_nodes([NODE])
    page = Page(serial=there.serial, boot_id=phone.boot_id(), fence=1)
    guard = Guard(phone, install_runner(phone, runner_for(phone.known.abi)), page.fence)
    journal = Journal(phone, desk.state_dir, page, guard)
    journal.open()
    guard.start()
    journal.note([Change(kind="node", key=NODE, old=before[NODE])])
    phone.write_node(NODE, "1804800")
    journal.close()
    assert put_back_by_hand(phone, desk.state_dir) == (True, f"{there.serial} was put back.")
    assert phone.read_nodes([NODE]) == before
    assert put_back_by_hand(phone, desk.state_dir)[1].endswith("had nothing to put back.")


def test_a_phone_above_its_ceiling_is_saved_by_itself(trial: Trial) -> None:
    """Whatever the agent does: the load ends at once and the clocks go back."""
    trial.trouble("never_cools", ambient_c=70, at="run@20%")
    report = trial.attempt(cores="little2", freq="low", time_min_s=300)
    blamed(report, Blame.CONDITION, "TooHot")
    assert "ceiling" in (report.fault.text if report.fault else "")
    assert trial.events("guard_restores")
    trial.settle()


def test_a_ceiling_is_in_the_unit_of_its_node(phone: Phone) -> None:
    lines = dict(line.split("\t") for line in ceiling_lines(phone.known))
    zones = {zone.path: zone for zone in phone.known.zones}
    limits = {zones[path].type: int(limit) * zones[path].scale for path, limit in lines.items()}
    assert limits["cpu-1-0-usr"] == 102
    assert limits["skin-therm-adc"] == 58
    assert limits["battery"] == 52
    assert "pm8150_tz" not in limits


def test_a_place_counts_how_often_its_phone_was_lost(phone: Phone) -> None:
    place = Place(phone, phone.known)
    for _ in range(3):
        place.lost("unplugged")
    heir = Place(phone, phone.known)
    heir.inherit(place)
    assert heir.presence().flaps == 3
    heir._lost_at[0] -= 2 * FLAPPING_S
    assert heir.presence().flaps == 2
    heir.forgive()
    assert heir.presence().flaps == 0
