"""The simulator in the suite: 200 seeds without a broken promise, and every planted bug caught by the general audit."""

import logging
from collections import Counter
from collections.abc import Iterator

import pytest
import structlog

from tests.sim.bugs import BUGS
from tests.sim.faults import FAULTS
from tests.sim.world import OPERATIONS, Bug, run_seed

SEEDS, BATCH = 200, 25
SEEDS_FOR_A_BUG = 20
FIRED: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A run makes tens of thousands of log lines: none is wanted here."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("start", range(0, SEEDS, BATCH))
def test_no_seed_breaks_a_promise_and_every_fault_fires(start: int):
    fired: Counter[str] = Counter()
    for seed in range(start, start + BATCH):
        report = run_seed(seed)
        assert report.violations == (), f"seed {seed}"
        assert report.operations == OPERATIONS >= 200
        fired.update(report.fired)
    print(f"seeds {start} to {start + BATCH - 1}:", ", ".join(f"{fault} {fired[fault]}" for fault in FAULTS))
    assert [fault for fault in FAULTS if not fired[fault]] == []


def test_a_seed_always_plays_the_same():
    assert run_seed(7) == run_seed(7)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_the_general_audit_catches_a_planted_bug(bug: Bug):
    needed = next((n for n in range(1, SEEDS_FOR_A_BUG + 1) if run_seed(n - 1, bug).violations), None)
    print(f"{bug.name}: {needed} seeds")
    assert needed is not None
