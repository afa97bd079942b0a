"""What was learnt of a model's bounds outlives the process."""

from functools import partial

from gateway.chat import Request, Slot, Usage
from gateway.estimate import Estimator, Learnt
from gateway.settings import Model
from gateway.store import calibrations
from gateway.store.database import Database

SLOT, MODEL = Slot("moonshot", "kimi-k2.6"), Model("kimi-k2.6")
REQUEST = Request(messages=[{"role": "user", "content": "hello"}])


async def test_a_new_process_starts_with_what_an_earlier_one_learnt(database: Database) -> None:
    first, second = Estimator(), Estimator()
    first.learn(SLOT, MODEL, REQUEST, Usage(900, 1))
    assert second.prompt_bound(SLOT, MODEL, REQUEST) < 900
    await database.write(partial(calibrations.keep, learnt=first.learnt))
    second.remember(await database.read(calibrations.known))
    assert second.prompt_bound(SLOT, MODEL, REQUEST) == first.prompt_bound(SLOT, MODEL, REQUEST) >= 900


async def test_of_two_processes_the_larger_figures_stay(database: Database) -> None:
    await database.write(partial(calibrations.keep, learnt={SLOT: Learnt(1300, 10)}))
    await database.write(partial(calibrations.keep, learnt={SLOT: Learnt(1200, 40)}))
    assert await database.read(calibrations.known) == {SLOT: Learnt(1300, 40)}
    knower = Estimator()
    knower.remember({SLOT: Learnt(1400, 0)})
    knower.remember(await database.read(calibrations.known))
    assert knower.learnt == {SLOT: Learnt(1400, 40)}
