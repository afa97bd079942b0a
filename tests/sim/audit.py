"""The auditor: knows the budgets, the rows and the providers' own meters, and trusts no counter.

- When a reservation is committed: everything spent and held in its windows, by the rows, is within the limit.
- An attempt's row is never below the provider's own bill, but for what the provider did not say or had no right to bill.
- An honest provider never passes a hold.
- At the end nothing is pending, counters are the sums of rows, a deduplicated request was answered at most once, and
  everybody got an answer or a notice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.budget import Amounts, Budget, Budgets, limit_at
from gateway.ledger import Outcome, State
from tests.doubles.memory_store import Disk
from tests.doubles.provider import Bill
from tests.sim.faults import SimPlay

Row = dict[str, Any]
KINDS = ("surface", "chain", "provider", "user", "chat", "workflow", "run", "key")
ANSWERS = (Outcome.ANSWERED, Outcome.CLAMPED, Outcome.CUT_OFF)


class Audit:
    """One run's auditor. `violations` is empty when all is well."""

    def __init__(self, budgets: Budgets, disk: Disk) -> None:
        self.violations: list[str] = []
        self.admitted = 0
        self._budgets = budgets
        self._disk = disk
        self._seen = 0
        self._rows: dict[tuple[str, str], list[Row]] = {}

    def blame(self, what: str) -> None:
        """Notes a violation."""
        self.violations.append(what)

    def committed(self, now_ms: int) -> None:
        """Reservations were committed: each new row is weighed against all rows before it."""
        rows = self._disk.rows
        if len(rows) == self._seen:
            return
        fresh = list(rows.values())[self._seen :]
        self._seen = len(rows)
        for row in fresh:
            self.admitted += 1
            for budget, key in self._matching(row):
                self._rows.setdefault((budget.name, key), []).append(row)
                self._weigh(budget, key, row, now_ms)

    def _weigh(self, budget: Budget, key: str, row: Row, now_ms: int) -> None:
        spent, held = self.standing(budget, key, row["started"])
        raises = [change for change in self._disk.raises if change.budget == budget.name]
        limit = limit_at(budget.base_limit(key), raises, now_ms)
        if spent + held > limit:
            self.blame(f"{row['id']} was admitted to {budget.name} {key!r}: spent {spent} and held {held} of {limit}")

    def standing(self, budget: Budget, key: str, at_ms: int) -> tuple[int, int]:
        """What is spent and held in a budget's window, by the rows alone."""
        window, spent, held = budget.window, 0, 0
        oldest = window.live_from(window.bucket(at_ms))
        for row in self._rows.get((budget.name, key), ()):
            counts = window.bucket(row["started"]) >= oldest
            if row["state"] == State.PENDING:
                held += amounts(row, "held").of(budget.unit) if counts or window.holds_outlive else 0
            elif counts:
                spent += amounts(row, "spent").of(budget.unit)
        return spent, held

    def bills(self, bills: Iterable[Bill]) -> None:
        """Compares each attempt's row with the provider's own meter."""
        for bill in bills:
            row, play = self._disk.rows[bill.reservation.id], bill.play
            assert isinstance(play, SimPlay)
            spent, held = row["spent_tokens"], row["held_tokens"]
            if bill.tokens > spent and play.honest:
                self.blame(f"{row['id']} ({row['outcome']}) is billed {bill.tokens} tokens, the ledger says {spent}")
            known_low = play.states is not None or row["outcome"] == Outcome.CANCELLED
            if bill.tokens > spent and not play.honest and spent < held and not known_low:
                self.blame(f"{row['id']} ({row['outcome']}) is billed {bill.tokens} above its hold and counts only {spent}")
            if play.honest and (row["overrun"] or row["overrun_micro_usd"]):
                self.blame(f"{row['id']} passed its hold of {held} with {spent}, and the provider kept within it")
            if bill.sent and row["spent_requests"] < 1:
                self.blame(f"{row['id']} was sent and counts no request")

    def end(self, now_ms: int) -> None:
        """What must hold after peace and a sweep."""
        for row in self._disk.rows.values():
            if row["state"] == State.PENDING:
                self.blame(f"{row['id']} is still pending")
        answered = Counter(
            row["request_id"] for row in self._disk.rows.values() if row["outcome"] in ANSWERS and "same" in row["request_id"]
        )
        for request_id, times in answered.items():
            if times > 1:
                self.blame(f"{request_id} was answered {times} times")
        self.counters(now_ms)

    def counters(self, now_ms: int) -> None:
        """Counters are the sums of rows."""
        for (name, key), counter in self._disk.counters.items():
            budget = self._budgets.by_name[name]
            at_ms = max(now_ms, counter.newest)
            stands = counter.balance(budget.window, at_ms)
            if stands != (summed := self.standing(budget, key, at_ms)):
                self.blame(f"{name} {key!r}: the counter says {stands}, the rows {summed}")
            for start, (spent, held) in counter.buckets.items():
                rows = [row for row in self._rows.get((name, key), ()) if budget.window.bucket(row["started"]) == start]
                ended = sum(amounts(row, "spent").of(budget.unit) for row in rows if row["state"] != State.PENDING)
                open_ = sum(amounts(row, "held").of(budget.unit) for row in rows if row["state"] == State.PENDING)
                if (spent, held) != (ended, open_):
                    self.blame(f"{name} {key!r} at {start}: the bucket says {spent}, {held}, the rows {ended}, {open_}")

    def _matching(self, row: Row) -> tuple[tuple[Budget, str], ...]:
        values = {kind: row[kind] for kind in KINDS if row[kind] is not None} | {"model": row["model_asked"]}
        return self._budgets.matching(values)


def amounts(row: Mapping[str, Any], what: str) -> Amounts:
    """A row's held or spent amounts."""
    money = row["held_micro_usd"] if what == "held" else row["cost_micro_usd"]
    return Amounts(row[f"{what}_requests"], row[f"{what}_tokens"], money)
