"""Long runs: `python -m tests.sim --seeds 1000 --start 0`. Exit code 1 when a seed broke a promise or a bug was missed."""

import argparse
import logging
import sys
import time
from collections import Counter

import structlog

from tests.sim.bugs import BUGS
from tests.sim.faults import FAULTS
from tests.sim.world import run_seed

SEEDS_FOR_A_BUG = 100


def main() -> int:
    """Runs the seeds, then every planted bug until it is caught."""
    parser = argparse.ArgumentParser(prog="tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    return max(clean(given.start, given.seeds), planted(given.start))


def clean(start: int, seeds: int) -> int:
    """Runs the seeds; 1 when one has a violation or a fault never fired."""
    began, fired, admitted, calls, broken = time.monotonic(), Counter[str](), 0, 0, 0
    for seed in range(start, start + seeds):
        report = run_seed(seed)
        fired.update(report.fired)
        admitted, calls = admitted + report.admitted, calls + report.calls
        if report.violations:
            broken += 1
            print(f"seed {seed}: {len(report.violations)} violations, first: {report.violations[0]}", flush=True)
    took_s = time.monotonic() - began
    print(f"{seeds} seeds, {broken} broken, {admitted} reservations, {calls} calls, {seeds / took_s:.1f} seeds/s")
    for fault in FAULTS:
        print(f"  {fired[fault]:>7}  {fault}")
    return int(bool(broken) or any(not fired[fault] for fault in FAULTS))


def planted(start: int) -> int:
    """Plants each bug; 1 when one is not caught."""
    missed = 0
    for bug in BUGS:
        needed = next((n for n in range(1, SEEDS_FOR_A_BUG + 1) if run_seed(start + n - 1, bug).violations), None)
        print(f"  {bug.name}: " + (f"caught after {needed} seeds" if needed else "NOT CAUGHT"), flush=True)
        missed += needed is None
    return int(bool(missed))


sys.exit(main())
