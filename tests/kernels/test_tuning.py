"""The autotuner: its search, its file, and the device that a file is valid for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent.launch.opencl_tuning import tuned_shapes
from kernels.autotuner import (
    MatmulCandidate,
    MatmulShape,
    OpenCLIdentity,
    OpenCLLimits,
    TunedMatmul,
    all_candidates,
    nearest,
    parse_tuned,
    read_tuned,
    search,
    tuned_text,
)
from kernels.tuning_run import parse_candidate_times
from orchestrator.commands.exit_codes import exit_code
from workloads.protocol.faults import BadFile, BadOutput

ROOM = OpenCLLimits(local_bytes=32768, max_group=256)
DEVICE = OpenCLIdentity("Adreno (TM) 630", "OpenCL 2.0 Adreno(TM) 630", "quite new")
SHAPE = MatmulShape(256, 256, 256)
FOUND = [
    TunedMatmul(SHAPE, MatmulCandidate.of("packed", {"MR": 6, "NR": 16, "PANELS": 4}), 120.5, 31),
    TunedMatmul(
        MatmulShape(64, 64, 64), MatmulCandidate.of("direct", {"MR": 4, "NR": 16}), 50.25, 20
    ),
    TunedMatmul(
        MatmulShape(64, 64, 64, transposed_b=True),
        MatmulCandidate.of("dots", {"MR": 3, "NC": 4}),
        9.0,
        5,
    ),
]


def _seconds(candidate: MatmulCandidate) -> float:
    """Compute the time of a candidate on a simulated device with one best value per parameter."""
    numbers = dict(candidate.params)
    base = {"packed": 1.0, "direct": 1.1}.get(candidate.variant, 4.0)
    best = {"MR": 6, "NR": 16, "WIDE": 8, "PANELS": 1, "PACK_A": 0, "DEEP": 2, "GX": 1, "GY": 1}
    away = sum(numbers.get(name, value) != value for name, value in best.items())
    too_large = numbers.get("MR") == 8 and numbers.get("NR", 0) >= 16
    return base * (1 + 0.15 * away) * (1.5 if too_large else 1.0)


def _imaginary_times(
    wanted: Sequence[MatmulCandidate], patience: int
) -> Mapping[MatmulCandidate, float]:
    return {each: _seconds(each) for each in wanted}


def test_a_search_finds_the_best_with_a_part_of_the_candidates() -> None:
    candidates = all_candidates(SHAPE, ROOM)
    winner, seconds, tried = search(SHAPE, ROOM, _imaginary_times)
    assert min(map(_seconds, candidates)) == pytest.approx(seconds, rel=0.05)
    assert _seconds(winner) == seconds
    assert tried < len(candidates) / 4


def test_a_search_without_time_returns_the_defaults() -> None:
    winner, _, tried = search(SHAPE, ROOM, _imaginary_times, in_time=lambda: False)
    assert (winner.variant, tried <= 6) == ("packed", True)


def test_the_best_of_another_shape_is_tried_first_if_it_is_valid() -> None:
    best = min(all_candidates(SHAPE, ROOM), key=_seconds)
    known = [*FOUND, TunedMatmul(MatmulShape(512, 512, 512), best, 1.0, 1)]
    timed: list[MatmulCandidate] = []

    def recording(
        wanted: Sequence[MatmulCandidate], patience: int
    ) -> Mapping[MatmulCandidate, float]:
        timed.extend(wanted)
        return _imaginary_times(wanted, patience)

    assert best == search(SHAPE, ROOM, recording, lambda: False, known)[0]
    assert not {each.candidate for each in FOUND} & set(
        timed
    )  # some of their parameters are missing
    timed.clear()
    direct = min(
        (each for each in all_candidates(SHAPE, ROOM) if each.variant == "direct"), key=_seconds
    )
    transposed = replace(SHAPE, transposed_b=True)
    search(transposed, ROOM, recording, lambda: False, [TunedMatmul(SHAPE, direct, 1.0, 1)])
    assert "direct" not in {each.variant for each in timed}


def test_a_candidate_that_cannot_be_launched_is_not_chosen() -> None:
    def only_vector(
        wanted: Sequence[MatmulCandidate], patience: int
    ) -> Mapping[MatmulCandidate, float]:
        return {each: 1.0 for each in wanted if each.variant == "vector"}

    assert search(SHAPE, ROOM, only_vector)[0].variant == "vector"
    with pytest.raises(BadFile, match="no candidate could be launched for 256x256x256 NN"):
        search(SHAPE, ROOM, lambda wanted, patience: {})


def test_no_candidate_is_larger_than_the_device() -> None:
    small = OpenCLLimits(local_bytes=0, max_group=1)
    ways = {each.variant for each in all_candidates(SHAPE, small)}
    assert {"vector", "direct", "packed"} == ways
    assert all(dict(each.params).get("GX", 1) == 1 for each in all_candidates(SHAPE, small))


def test_a_tuning_file_survives_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "phone.tuned"
    path.write_text(tuned_text(DEVICE, FOUND))
    assert read_tuned(path, DEVICE) == FOUND


@pytest.mark.parametrize("word", ["name", "version", "driver"])
def test_a_tuning_file_of_another_driver_is_refused(tmp_path: Path, word: str) -> None:
    path = tmp_path / "phone.tuned"
    path.write_text(tuned_text(DEVICE, FOUND))
    with pytest.raises(BadFile, match="was tuned for .*; tune again") as refused:
        read_tuned(path, replace(DEVICE, **{word: "another"}))
    assert exit_code(refused.value) == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not begin with"),
        ("farmhand-tuned 2\n", "device or kernels are missing"),
        ("farmhand-tuned 2\ndevice a\tb\tc\nkernels 0\nsgemm 1 2\n", "line 4 is not a record"),
        ("farmhand-tuned 2\ndevice a\tb\tc\nkernels 0\nsgemm 1 1 1 0 0 magic\n", "not a record"),
        (
            "farmhand-tuned 2\ndevice a\tb\tc\nkernels 0\nsgemm 1 1 1 0 0 direct MR\n",
            "not a record",
        ),
    ],
)
def test_a_file_that_is_not_a_tuning_file_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "phone.tuned"
    path.write_text(text)
    with pytest.raises(BadFile, match=f"is not a tuning file: .*{why}"):
        read_tuned(path, OpenCLIdentity("a", "b", "c"))


def test_a_tuning_file_of_other_kernels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "phone.tuned"
    _, digest, _ = parse_tuned(tuned_text(DEVICE, FOUND))
    path.write_text(tuned_text(DEVICE, FOUND).replace(digest, "0" * 64))
    with pytest.raises(BadFile, match="another version of the kernels; tune again"):
        read_tuned(path, DEVICE)


def test_a_product_uses_the_nearest_size_of_the_same_transposes() -> None:
    assert FOUND[0].candidate == nearest(FOUND, MatmulShape(200, 300, 200))
    assert FOUND[1].candidate == nearest(FOUND, MatmulShape(32, 64, 100))
    assert FOUND[2].candidate == nearest(FOUND, MatmulShape(900, 900, 900, transposed_b=True))
    assert nearest(FOUND, MatmulShape(8, 8, 8, transposed_a=True)) is None


def test_times_of_a_phone_count_only_with_correct_results() -> None:
    output = (
        '{"line":"device","device":"x"}\n'
        '{"line":"candidate","number":0,"wall_ns":2000,"error":1e-7}\n'
        '{"line":"candidate","number":1,"wall_ns":1,"error":0.5}\n'
        '{"line":"candidate","number":2,"fault":"no room"}\n'
        '{"line":"candidate","number":9,"wall_ns":1,"error":0}\n'
        '{"line":"done","candidates":3,"t_ns":1}\n'
    )
    assert list(parse_candidate_times(output, 3)) == [(0, 2e-6)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "breaks the contract"),
        ("rubbish", "breaks the contract"),
        ('{"line":"candidate","number":0}\n{"line":"done"}', None),
        ('1 warning generated.\n{"line":"done"}\n', None),
        ('{"line":"fault","code":"unsupported","text":"no device"}', "no device"),
    ],
)
def test_a_runner_that_cannot_tune_gives_the_reason(text: str, why: str | None) -> None:
    if why is None:
        assert list(parse_candidate_times(text, 1)) == []
        return
    with pytest.raises(BadOutput, match=why):
        list(parse_candidate_times(text, 1))


def test_a_phone_is_tuned_for_the_products_of_training() -> None:
    assert [s.label for s in tuned_shapes([64])] == ["64x64x64 NN", "64x64x64 NT", "64x64x64 TN"]
