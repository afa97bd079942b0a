"""Faults that other products really had, each kept away by at least one test that carries its number.

`python -m tests.test_cases` prints each case with the number of its tests.
"""

import re
from collections import Counter
from pathlib import Path

CASES = {
    "1": "a used-up hour survives a restart: nothing is sent to that provider",
    "2": "an exhausted provider with three attempts allowed gets no call, not three",
    "3": "a streamed reply larger than what is left is clamped or refused, never let past",
    "4": "50 at once with room for 10: exactly 10 go out",
    "5": "when the second budget refuses, the first shows no hold",
    "6": "a limit of 0 allows nothing; a negative one stops the start",
    "7": "exactly the limit is allowed, one token more is not",
    "8": "an alias and the name count into one budget",
    "9": "the fallback's own budget is checked",
    "10": "days of 23 and 25 hours, reset hours that do not exist, month ends, weeks from Monday",
    "11": "of two refusing windows the later reset is named",
    "12a": "a limit lowered below what is spent: no call until enough has left the window",
    "12": "a raise lets waiting work run at once and ends by itself",
    "13": "a changed limit keeps usage; a new window starts from the rows",
    "14": "a threshold is told once per window, also after a restart and with two replicas",
    "15": "a call refused by one limit does not use up another",
    "16": "a call counts in the window in which it was reserved",
    "17": "a client that leaves mid-stream: upstream closed, the delivered part settled",
    "18": "a client that leaves before the first token is never free",
    "19": "leaving right after the last chunk is a success",
    "20": "missing usage is estimated, explicit nought is respected",
    "21": "a stated cost of 0 with real tokens is priced from tokens",
    "22": "cached tokens at the cached rate, once, in both wire shapes",
    "23": "reasoning tokens are counted once, wherever the vendor puts them",
    "24": "of cumulative usage events the last wins",
    "25": "time-outs count at the worst case; a provider's own 503 is released",
    "26": "the ledger fails while settling: the person has the answer, it is settled later, once",
    "27": "an unpriced model under a USD budget is refused with the lines that mend it",
    "28": "Retry-After in all its forms, the latest wins",
    "29": "each target is tried once, cycles end",
    "30": "a caller's fault neither falls back nor trips the breaker",
    "31": "a stream whose second event is an error moves on, nothing was shown",
    "32": "cuts, stalls and malformed chunks: before output move on, after it end clearly",
    "33": "all cooling down: 503 with the soonest time; a refused key is told once",
    "34": "one Idempotency-Key, one call, also at once and after a restart; another body conflicts",
    "35": "one of two gateways dies mid-call: its holds expire at the worst case",
    "36": "an update delivered twice, or while down: one reply, in order",
    "37": "Markdown of every kind arrives well-formed, nothing lost",
    "38": "long fences, emoji, lone surrogates: every part is delivered",
    "39": "a long flood penalty: the final answer still arrives once, others are not delayed",
    "40": "a final text equal to the preview is one bubble",
    "41": "only lines that are addressed to the bot reach a model",
    "42": "topics: reply, typing and progress stay where the question was",
    "43": "a stranger's tap is refused by name; a token fits 64 bytes",
    "44": "a webhook without its secret: 403 before any work, no start with an empty one",
    "45": "blocked, migrated, deleted, edited, anonymous: nothing crashes",
    "46": "empty replies, huge files, albums and split pastes",
    "47": "a group hears of an empty budget once per window, and is answered again after a raise",
    "48": "/stop ends a long answer within a second; the part is kept and settled",
    "49": "two users, two chats, two bots: nothing mixes",
    "50": "what is due while two processes run, or while none does, happens once, late rather than never",
    "51": "killed in its second step a run goes on, repeats nothing finished and spends nothing twice",
    "52": "a budget gone in the second step parks the run with a time; it goes on by itself, or is cancelled",
    "53": "the same key started from three processes is one run",
    "54": "of twenty items one fails: the others' results are kept, the failure is named",
    "55": "a program that hangs is killed with its group; its output is kept, capped and said so",
    "56": "parameters that are wrong or hostile are refused by name, never a shell injection",
    "57": "an approval answered twice, after its time, after a restart, by the wrong person",
    "58": "a file edited while its run waits: the run ends clearly or goes on, it never mixes",
    "59": "a run's own cap stops its asking, says so, and a larger one goes on",
    "60": "n, tools and schemas are counted; fields that change the price are refused by name",
    "61": "images are bounded by declaration or refused, never by bytes",
    "62": "a huge prompt is admitted when it fits and told apart when it never can",
    "63": "little room on the first provider: the second answers in full, no stump",
    "64": "only holds in the way: a short wait, no notice",
    "65": "a model that wants max_completion_tokens is answered",
    "66": "a stream that ignores its limit is cut, closed and recorded as overrun",
    "67": "when the window opens: people first, oldest first, nothing past the limit, nobody lost",
    "68": "a cancelled waiter and a poisoned member leave the batch unharmed",
}


def count_per_case() -> Counter[str]:
    """How many test functions carry each case's number."""
    found: Counter[str] = Counter()
    for path in Path(__file__).parent.rglob("test_*.py"):
        found.update(number.lstrip("0") for number in re.findall(r"def test_case_(\d+a?)_", path.read_text()))
    return found


def test_every_case_has_a_test_and_every_number_is_a_case() -> None:
    found = count_per_case()
    assert {number for number in CASES if not found[number]} == set()
    assert set(found) - set(CASES) == set()


if __name__ == "__main__":
    for case, title in CASES.items():
        print(f"{case:>4}  {count_per_case()[case]:>3} tests  {title}")
