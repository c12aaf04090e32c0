"""A metric whose readings do not cover the run is absent."""

from dataclasses import replace

import pytest

from agent.collect.energy import EnergyGrade, PowerObservation
from agent.collect.readings import NodeValue, Readings
from agent.judge.coverage import ENERGY, HEAT, check_coverage, covered_shares, group_of
from agent.judge.run_metrics import measure
from tests.agent.observations import PROBE, SECOND_NS, a_window, an_observation, output_of
from workloads.protocol.metrics import Provenance, Provenances, Source

ROWS = 100
PHONE = Provenance(source=Source.PHONE)


@pytest.mark.parametrize(("known", "is_shown"), [(100, True), (93, True), (70, False), (10, False)])
def test_evidence_that_ends_leaves_no_metric(known: int, is_shown: bool) -> None:
    zone = PROBE.facts.cpu_zones[0]
    t_ns = [row * SECOND_NS // 10 for row in range(ROWS)]
    temps: list[NodeValue] = [45_000 if row < known else 0 for row in range(ROWS)]
    power = PowerObservation([(t, 3.0) for t in t_ns[:known]], EnergyGrade.GAUGE)
    run = an_observation(
        output=output_of([a_window(9.9)]),
        readings=Readings((zone.path,), t_ns, {zone.path: temps}),
        sampled_temps_c=(45.0,) * known,
        power=power,
        provenance=Provenances(time=PHONE, clock=PHONE, heat=PHONE, energy=PHONE),
    )
    run = replace(
        run, probe=replace(PROBE, facts=PROBE.facts.model_copy(update={"cpu_zones": (zone,)}))
    )
    shares = covered_shares(run)
    assert shares[HEAT] == pytest.approx(known / ROWS, abs=0.06)
    assert shares[ENERGY] == pytest.approx(known / ROWS, abs=0.06)
    values = {metric.name: metric for metric in measure(run)}
    shown = {group_of(name) for name in values} - {""}
    assert shown == ({HEAT, ENERGY} if is_shown else set())
    assert ("peak_temp_c" in values) is is_shown
    assert not is_shown or values["energy_j"].coverage == shares[ENERGY]
    assert len(list(check_coverage(run))) == (0 if is_shown else 2)
