"""The order in which limits are written: min may never exceed max, there and back."""

from hypothesis import given
from hypothesis import strategies as st

from agent.control.clocks import NodeWrite, PolicyState, order_writes

LADDER = (300000, 576000, 1113600, 1785600)
GOVERNORS = ("schedutil", "performance")


def _walk(low: int, high: int, writes: list[tuple[str, str]]) -> tuple[int, int]:
    """An old kernel: it refuses whatever would cross the limits."""
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
    """Pinning and undoing it in reverse order pass on the strictest kernel."""
    low, high = sorted((first, second))
    writes = order_writes(4, PolicyState("schedutil", GOVERNORS, low, high), khz)
    pinned = _walk(low, high, [(write.path, write.value) for write in writes])
    assert pinned == (khz, khz)
    undone = [(write.path, write.old) for write in reversed(writes)]
    assert _walk(khz, khz, undone) == (low, high)


def test_the_governor_goes_first() -> None:
    """Changing a governor may reset the limits, so limits follow it."""
    state = PolicyState("schedutil", GOVERNORS, 300000, 1785600)
    first = order_writes(0, state, 576000)[0]
    assert first == NodeWrite(
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance", "schedutil"
    )


def test_a_kernel_without_the_steady_governor_keeps_its_own() -> None:
    """min = max holds the clock under any governor."""
    state = PolicyState("schedutil", ("schedutil",), 300000, 1785600)
    assert len(order_writes(0, state, 576000)) == 2
