"""Codes of the protocol: every reason has a sentence, every kind of fault one exception."""

import string
from importlib import import_module
from pkgutil import walk_packages

import pytest

import agent
import orchestrator
import workloads
from workloads.protocol.faults import FarmError, FaultKind
from workloads.protocol.verdict import (
    REASON_LIMITS,
    REASON_TEXTS,
    Reason,
    ReasonCode,
    Validity,
    Verdict,
    reason_text,
)


def all_errors() -> set[type[FarmError]]:
    for package in (agent, orchestrator, workloads):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            shipped = (".fleet_app", ".measured_profiles")  # for another environment
            is_shipped = any(name in module.name for name in shipped)
            if not is_shipped and not module.name.endswith(("__main__", "migrations.env")):
                import_module(module.name)
    found = {FarmError}
    while more := {child for parent in found for child in parent.__subclasses__()} - found:
        found |= more
    return found


def test_every_kind_of_fault_belongs_to_one_exception() -> None:
    kinds = [error.kind for error in all_errors() if "kind" in vars(error)]
    assert sorted(kinds) == sorted(FaultKind)


def test_the_default_message_of_a_fault_has_the_form_of_an_error() -> None:
    for error in all_errors():
        if "kind" in vars(error):
            message = str(error())
            assert message[0].islower(), message
            assert not message.endswith("."), message


@pytest.mark.parametrize("code", ReasonCode)
def test_every_reason_has_a_sentence(code: ReasonCode) -> None:
    fields = [name for _, name, _, _ in string.Formatter().parse(REASON_TEXTS[code]) if name]
    text = reason_text(code, [dict.fromkeys(fields, 1)])
    assert text != code
    assert "{" not in text
    assert not text.endswith(".")


def test_reasons_of_one_code_are_rendered_with_the_range_of_their_values() -> None:
    reasons = [Reason.void(ReasonCode.START_TOO_WARM, temp_c=t, limit_c=32) for t in (40, 35.04)]
    text = reason_text(ReasonCode.START_TOO_WARM, [reason.values for reason in reasons])
    assert text == "the run started at 35.0 to 40.0 °C; the limit is 32.0 °C"


@pytest.mark.parametrize("values", [{}, {"temp_c": "hot", "limit_c": 1}, {"other": 1}])
def test_values_that_do_not_fit_the_sentence_raise_nothing(values: dict[str, float | str]) -> None:
    reason = Reason(code=ReasonCode.START_TOO_WARM, validity=Validity.VOID, values=values)
    assert str(reason)


def test_a_reason_states_its_figure_its_limit_and_when() -> None:
    slept = Reason.void(ReasonCode.PHONE_SLEPT, seconds=2.5, limit=0.5)
    assert slept.text == "the phone was suspended for 2.5 s of the run; the limit is 0.5 s"
    assert slept.when == "over the whole run"
    gap = Reason.suspect(ReasonCode.SAMPLING_GAP, gap_s=4.0, limit=3.0, at_s=7.25)
    assert gap.when == "7.2 s after the start"
    assert Reason.void(ReasonCode.START_TOO_WARM, temp_c=41.0, limit_c=35.0).when == "at the start"
    # an agent that names no limit, or a senseless one
    assert Reason.void(ReasonCode.PHONE_SLEPT, seconds=2.5).text.endswith("2.5 s of the run")
    hostile = Reason.void(ReasonCode.PHONE_SLEPT, seconds=2.5, limit="x", at_s="soon")
    assert hostile.text.endswith("the limit is x s")
    assert hostile.when == "over the whole run"


@pytest.mark.parametrize("code", REASON_LIMITS)
def test_a_limit_has_the_value_that_it_names(code: ReasonCode) -> None:
    templates = REASON_TEXTS[code] + REASON_LIMITS[code]
    fields = [name for _, name, _, _ in string.Formatter().parse(templates) if name]
    assert "limit" in fields
    assert "; the limit is " in reason_text(code, [dict.fromkeys(fields, 1)])


def test_a_disturbed_run_still_shows_what_it_learned_and_how_much_memory_it_took() -> None:
    reasons = (
        Reason.void(ReasonCode.STEP_TIMES_CHANGED),
        Reason.suspect(ReasonCode.STEP_ENERGY_CHANGED),
        Reason.remark(ReasonCode.COUNT_MISMATCH),
    )
    verdict = Verdict(validity=Validity.VOID, reasons=reasons)
    assert verdict.doubted == {"time", "clock", "energy", "heat"}
    assert verdict.validity_of("energy") == verdict.validity_of("time") == Validity.VOID
    assert verdict.validity_of("learning") == verdict.validity_of("memory") == Validity.VALID


def test_a_run_that_did_not_learn_still_has_its_times() -> None:
    reason = Reason.void(ReasonCode.LOSS_DID_NOT_FALL)
    verdict = Verdict(validity=Validity.VOID, reasons=(reason,))
    assert verdict.validity_of("learning") is Validity.VOID
    assert verdict.validity_of("time") is Validity.VALID


@pytest.mark.parametrize("validity", [Validity.SUSPECT, Validity.VOID])
def test_a_run_without_a_reason_counts_for_nothing(validity: Validity) -> None:
    verdict = Verdict(validity=validity)
    assert {verdict.validity_of(family) for family in verdict.doubted} == {validity}
    assert {"time", "memory", "learning", "energy", "heat"} <= verdict.doubted
