"""A small telemetry blob as an agent packs it."""

from workloads.protocol.telemetry import pack_telemetry

ZONE = "/sys/class/thermal/thermal_zone0/temp"
CLOCK = "/sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq"


def a_blob(windows: int = 3, readings: int = 4) -> bytes:
    """Build windows, readings of a zone, a clock and a GPU, and a traced step of two operations."""
    second_ns = 1_000_000_000
    return pack_telemetry(
        {
            "version": 1,
            "windows": {
                "first": [10 * index for index in range(windows)],
                "n": [10] * windows,
                "t_ns": [5 * second_ns + index * second_ns for index in range(windows)],
                "ns": [10 * 2_000_000 + index for index in range(windows)],
                "ns_min": [1_900_000] * windows,
                "ns_max": [2_100_000] * windows,
            },
            "readings": {
                "paths": [ZONE, CLOCK, "/proc/stat"],
                "t_ns": [5 * second_ns + index * second_ns for index in range(readings)],
                "columns": [
                    [30_000 + 500 * index for index in range(readings)],
                    [2_400_000] * readings,
                    ["0:1/2"] * readings,
                ],
            },
            "ops": {"name": ["fc1.forward", "fc1.backward"], "kind": ["gemm", "gemm"]},
            "traces": [[0, 5 * second_ns, 0, [600_000, 2_000_000]]],
            "series": {
                "energy_j": {
                    "t_ns": [5 * second_ns + index * second_ns for index in range(readings)],
                    "total": [4.0 * index for index in range(readings)],
                },
                "gpu_busy_s": {
                    "t_ns": [5 * second_ns + index * 1_000_000 for index in range(20)],
                    "rate": [0.5] * 20,
                },
            },
            "cores": 4,
        }
    )
