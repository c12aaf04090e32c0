"""The stop rule: how often its interval covers the median, and how many runs it saves.

    .venv/bin/python -m benchmarks.stopping [--trials 20000]

Simulated noise like that recorded on phones (tests/planning/run_noise.py); no phone and no clock is
involved, so the figures are the same on every machine.
"""

import argparse

from orchestrator.sweepfile.policy import StopRule
from tests.planning.run_noise import PINNED, UNPINNED, coverage, saving, stopped

RULES = (
    StopRule(half_width_rel=0.02, n_max=100),
    StopRule(half_width_rel=0.03),
    StopRule(half_width_rel=0.05, n_max=100),
)


def main() -> None:
    """Print a table of coverages, and of saved runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20_000)
    trials = parser.parse_args().trials
    print("step CV  lag-1   until  max  covered  mean runs  by width")
    for noise in dict.fromkeys([*PINNED, *UNPINNED]):
        for rule in RULES:
            decisions = stopped(noise, rule, trials)
            runs = sum(each.n for each in decisions) / trials
            width = sum(each.cause == "width" for each in decisions) / trials
            print(
                f"{noise.cv:7.1%} {noise.lag_1:6.2f} {rule.half_width_rel:7.0%} {rule.n_max:4}"
                f" {coverage(noise, decisions):8.2%} {runs:10.1f} {width:9.0%}"
            )
    print("\nuntil  fixed  mean runs  fewer  precise")
    for rule in RULES:
        runs_saved = saving(rule, 1000)
        print(
            f"{rule.half_width_rel:5.0%} {runs_saved.fixed:6} {runs_saved.mean:10.1f}"
            f" {runs_saved.share:6.0%} {runs_saved.precise:8.0%}"
        )


if __name__ == "__main__":
    main()
