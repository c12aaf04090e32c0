"""The order in which limits are written: min must never exceed max, also while undoing."""

from hypothesis import given
from hypothesis import strategies as st

from agent.prepare.clock_pinning import ClockNodes, ClockState, NodeWrite, limit_writes

LADDER = (300000, 576000, 1113600, 1785600)
NODES = ClockNodes("policy0", "/sys/devices/system/cpu/cpufreq/policy0")
GOVERNORS = ("schedutil", "performance")


def _apply_writes(low: int, high: int, writes: list[tuple[str, str]]) -> tuple[int, int]:
    """Apply writes like an old kernel, which refuses limits that cross."""
    for path, value in writes:
        if path.endswith("scaling_min_freq"):
            assert int(value) <= high
            low = int(value)
        elif path.endswith("scaling_max_freq"):
            assert int(value) >= low
            high = int(value)
    return low, high


@given(st.sampled_from(LADDER), st.sampled_from(LADDER), st.sampled_from(LADDER))
def test_limits_never_cross(first: int, second: int, khz: int) -> None:
    """Pinning, and undoing it in reverse order, has to work on the strictest kernel."""
    low, high = sorted((first, second))
    writes = limit_writes(NODES, ClockState("schedutil", GOVERNORS, low, high), khz)
    pinned = _apply_writes(low, high, [(write.path, write.value) for write in writes])
    assert pinned == (khz, khz)
    undone = [(write.path, write.old) for write in reversed(writes)]
    assert _apply_writes(khz, khz, undone) == (low, high)


def test_the_governor_is_written_first() -> None:
    """Changing a governor may reset the limits."""
    state = ClockState("schedutil", GOVERNORS, 300000, 1785600)
    first = limit_writes(NODES, state, 576000)[0]
    assert first == NodeWrite(
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance", "schedutil"
    )


def test_a_kernel_without_the_performance_governor_keeps_its_own() -> None:
    """min = max pins the clock under any governor."""
    state = ClockState("schedutil", ("schedutil",), 300000, 1785600)
    assert len(limit_writes(NODES, state, 576000)) == 2
