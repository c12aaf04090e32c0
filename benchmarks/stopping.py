"""Stopping when it is known: how often the interval is right, and how many runs it saves.

    .venv/bin/python -m benchmarks.stopping [--trials 20000]

Simulated noise of the character that was recorded on phones (tests/plan/noise.py); no phone and no
clock is involved, so the figures are the same on every machine.
"""

import argparse

from orchestrator.plan.policy import StopRule
from tests.plan.noise import PINNED, UNPINNED, coverage, saving, stopped

RULES = (
    StopRule(half_width_rel=0.02, n_max=100),
    StopRule(half_width_rel=0.03),
    StopRule(half_width_rel=0.05, n_max=100),
)


def main() -> None:
    """Print a table of coverages, and what a sweep saves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20_000)
    trials = parser.parse_args().trials
    print("step CV  lag-1   until  max  covered  mean runs  by width")
    for noise in dict.fromkeys([*PINNED, *UNPINNED]):
        for rule in RULES:
            found = stopped(noise, rule, trials)
            runs = sum(each.n for each in found) / trials
            width = sum(each.stop == "width" for each in found) / trials
            print(
                f"{noise.cv:7.1%} {noise.lag_1:6.2f} {rule.half_width_rel:7.0%} {rule.n_max:4}"
                f" {coverage(noise, found):8.2%} {runs:10.1f} {width:9.0%}"
            )
    print("\nuntil  fixed  mean runs  fewer  known")
    for rule in RULES:
        made = saving(rule, 1000)
        print(
            f"{rule.half_width_rel:5.0%} {made.fixed:6} {made.mean:10.1f}"
            f" {made.share:6.0%} {made.known:6.0%}"
        )


if __name__ == "__main__":
    main()
