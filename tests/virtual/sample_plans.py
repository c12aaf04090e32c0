"""Plans for tests: one matrix product, described by its counts."""

import json

RUNNER = b"#!/system/bin/sh\n# farmhand-runner placeholder\nexit 9\n"
HOME = "/data/local/tmp"


def a_plan(size: int = 512, threads: int = 4, **changes: object) -> bytes:
    """Make a plan with one matrix product of size^3 per step."""
    header = {
        "case": "case-1",
        "workload": "matmul",
        "backend": "cpu",
        "threads": threads,
        "training": False,
        "samples_per_step": 1,
        "parameter_bytes": 8 * size * size,
        "activation_bytes": 4 * size * size,
        "body_bytes": 0,
        "ops": [
            {
                "name": "matmul",
                "kind": "matmul",
                "flops": 2 * size**3,
                "read_bytes": 8 * size * size,
                "write_bytes": 4 * size * size,
            }
        ],
        **changes,
    }
    raw = json.dumps(header).encode() + b"\n"
    return f"farmhand-plan 1 {len(raw)}\n".encode() + raw
