"""Tables of SoCs: every step has its row, and the power of one core comes with an honest error."""

from pathlib import Path
from statistics import median

import pytest

from agent.virtual.socs import InvalidSoc, load_soc, read_soc, soc_ids, soc_path
from agent.virtual.twin.core_power_model import CorePowerModel, family_model
from agent.virtual.twin.curve_error import LeftOut, predict_curve
from benchmarks.curve_cross_validation import cross_validate
from benchmarks.virtual_accuracy import binomial_p, fit_error

SOCS = [load_soc(soc_id) for soc_id in soc_ids()]


def changed_table(folder: Path, old: str, new: str) -> Path:
    text = soc_path("sm8150").read_text(encoding="utf-8")
    assert old in text
    path = folder / "changed.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("    [403200, 1496.6, 56.6],\n", "", "has no row for 403200 kHz"),
        ("ladder_khz = [300000, 403200", "ladder_khz = [403200, 300000", "does not rise"),
        ("[300000, 1113.9, 52.4]", "[300000, 1113.9, 0.0]", "is not positive"),
        ("[300000, 1113.9, 52.4]", "[300001, 1113.9, 52.4]", "has no row for 300000 kHz"),
        ('design = "Cortex-A55"', 'design = "Cortex-A99"', "unknown design"),
        ("process_nm = 7", "process_nm = 0", "process_nm"),
        ("id = ", "id == ", "changed.toml"),
    ],
)
def test_an_incomplete_table_is_refused_in_one_sentence(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    row = next(part for part in load_soc("sm8150").cluster if part.role == "little").curve[1]
    old = old.replace("1496.6, 56.6", f"{row[1]}, {row[2]}")
    with pytest.raises(InvalidSoc) as refusal:
        read_soc(changed_table(tmp_path, old, new))
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_lowest_steps_of_the_855_do_half_of_their_work() -> None:
    shares = {part.role: part.work_shares for part in load_soc("sm8150").cluster}
    assert shares["big"][0] == pytest.approx(0.5, abs=0.01)
    assert shares["prime"][0] == pytest.approx(0.5, abs=0.01)
    assert set(shares["big"][1:]) | set(shares["prime"][1:]) | set(shares["little"]) == {1.0}


def test_the_stored_figures_are_those_of_the_fit() -> None:
    for soc in SOCS:
        for part in soc.cluster:
            figures = family_model().figures(soc, part)
            assert part.power is not None
            for khz in (part.ladder_khz[0], part.ladder_khz[-1]):
                assert part.power.milliwatts(khz) == pytest.approx(
                    figures.milliwatts(khz), rel=0.01
                ), soc.id


def test_measured_curves_are_fitted_within_8_percent() -> None:
    assert fit_error() < 0.08


def test_a_left_out_soc_is_predicted_from_its_family() -> None:
    tested = ("sm8150", "zuma", "mt6853t", "sdm660")
    rows = list(cross_validate(SOCS, LeftOut.SOC, tested))
    assert len({row.soc for row in rows}) == 4
    assert median(abs(row.log_error) for row in rows) < 0.25
    assert sum(row.is_covered for row in rows) > 0.9 * len(rows)


def test_a_soc_without_rows_has_a_wider_interval_than_a_measured_one() -> None:
    def widths(soc_id: str) -> float:
        return median(point.high_mw / point.low_mw for point in predict_curve(load_soc(soc_id)))

    assert widths("sm8150") < widths("sm8250") < widths("kirin990")


def test_a_fit_ignores_one_absurd_row() -> None:
    soc = load_soc("sm7150")
    rows = list(soc.cluster[1].curve)
    rows[5] = (rows[5][0], rows[5][1], rows[5][2] * 5)
    worse = soc.cluster[1].model_copy(update={"curve": tuple(rows)})
    bad = soc.model_copy(update={"cluster": (soc.cluster[0], worse)})
    others = [other for other in SOCS if other is not soc]
    good_mw = family_model().estimate(soc, soc.cluster[1], [2_208_000]).milliwatts[0]
    bad_mw = CorePowerModel([*others, bad]).estimate(bad, bad.cluster[1], [2_208_000]).milliwatts[0]
    assert bad_mw == pytest.approx(good_mw, rel=0.1)


def test_the_binomial_test_rejects_both_kinds_of_wrong_intervals() -> None:
    assert binomial_p(95, 100) > 0.5
    assert binomial_p(85, 100) < 0.01
    assert binomial_p(400, 400) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("left_out", list(LeftOut))
def test_stated_intervals_hold_95_percent_of_left_out_rows(left_out: LeftOut) -> None:
    rows = list(cross_validate(SOCS, left_out))
    assert binomial_p(sum(row.is_covered for row in rows), len(rows)) > 0.01
