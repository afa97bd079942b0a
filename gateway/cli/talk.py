"""The chat on a terminal: the answer streams, one line under it says who answered and how the budgets stand.

It runs beside the server in the same process. Lines are read in a thread of their own, so that nothing else waits for
the person. Ctrl-C stops an answer; twice, it leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import termios
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from gateway.chat import Chunk, Message, Request
from gateway.cli.render import amount, bar, countdown, moment, unit_name
from gateway.cli.words import error_text, origin, reader
from gateway.dispatcher import Begun, Reply, StreamBroken
from gateway.errors import Cause, ChainExhausted, GatewayError
from gateway.notice import notice

if TYPE_CHECKING:
    from gateway.app import App
    from gateway.store.budgets import Balance

HINTS = "/budget shows the budgets, /new forgets the conversation, /quit leaves; Ctrl-C stops an answer."
BYTES_PER_TOKEN = 3
"""For cutting the conversation to the configured tokens: the gate bounds the rest."""


class Lines:
    """Reads the terminal line by line, each in a daemon thread: one blocked in a read never holds the exit up."""

    def __init__(self) -> None:
        with contextlib.suppress(ImportError):
            import readline  # its import gives input() line editing and history

            # A paste of several lines is one question, not one for each line.
            readline.parse_and_bind("set enable-bracketed-paste on")

    async def read(self, prompt: str) -> str | None:
        """The next line; None at the end of input."""
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str | None] = loop.create_future()

        def done(text: str | None) -> None:
            if not line.done():
                line.set_result(text)

        def work() -> None:
            try:
                text: str | None = input(prompt)
            except EOFError:
                text = None
            with contextlib.suppress(RuntimeError):  # The loop is gone when the chat was left meanwhile.
                loop.call_soon_threadsafe(done, text)

        threading.Thread(target=work, daemon=True, name="terminal").start()
        return await line


class Talk:
    """One conversation with one target."""

    def __init__(self, app: App, target: str) -> None:
        self._app = app
        self._target = target
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._history: list[Message] = []
        self._again: str | None = None
        self._opens_at: datetime | None = None
        self._answer: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._warned = False

    async def run(self) -> None:
        """Until the person leaves."""
        loop = asyncio.get_running_loop()
        modes = termios.tcgetattr(sys.stdin)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        loop.add_signal_handler(signal.SIGTERM, self._leave.set)
        try:
            await self._turns(Lines())
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, modes)

    async def _turns(self, lines: Lines) -> None:
        leave = asyncio.ensure_future(self._leave.wait())
        while True:
            line = asyncio.ensure_future(lines.read(self._prompt()))
            await asyncio.wait((line, leave), return_when=asyncio.FIRST_COMPLETED)
            if leave.done():
                line.cancel()
                self._console.print()
                return
            text = line.result()
            self._warned = False
            if text is None or text.strip() == "/quit":
                return
            await self._turn(text.strip())

    def _prompt(self) -> str:
        now = self._app.clock.now()
        if self._opens_at is not None and self._opens_at > now:
            return f"\nyou (opens {moment(self._opens_at, self._app.settings.zone, now)}; Enter asks again) › "
        return "\nyou › " if self._again is None else "\nyou (Enter asks again) › "

    def _interrupt(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.cancel()
        elif self._warned:
            self._leave.set()
        else:
            self._warned = True
            self._console.print("\n(Ctrl-C again leaves)", style="dim", end="")

    async def _turn(self, text: str) -> None:
        if not text and self._again is not None:
            text = self._again
        if not text:
            return
        if text == "/new":
            self._history.clear()
            self._again = self._opens_at = None
            self._console.print("A new conversation.", style="dim")
        elif text == "/budget":
            await self._print_budgets()
        elif text.startswith("/"):
            self._console.print(HINTS, style="dim")
        else:
            self._answer = asyncio.create_task(self._ask(text))
            with _unechoed(), contextlib.suppress(asyncio.CancelledError):
                await self._answer

    async def _ask(self, text: str) -> None:
        question: Message = {"role": "user", "content": text}
        system = self._app.settings.telegram.system_prompt
        persona: list[Message] = [{"role": "system", "content": system}] if system else []
        request = Request(messages=[*persona, *self._recent(), question])
        asked = origin()
        shown: list[str] = []
        self._again = self._opens_at = None
        try:
            reply = await self._stream(
                request, asked.request_id, self._app.dispatcher.stream(request, self._target, asked), shown
            )
        except asyncio.CancelledError:
            self._console.print("\n[stopped]", style="yellow")
            self._keep(question, "".join(shown))
            return
        except StreamBroken as error:
            self._console.print(f"\n[the answer broke off: {error.error}]", style="red")
            self._keep(question, error.text)
            return
        except GatewayError as error:
            self._refused(error, text, asked.request_id)
            return
        self._keep(question, "".join(shown))
        self._console.print(await self._under(reply))

    async def _stream(self, request: Request, request_id: str, events: AsyncIterator[object], shown: list[str]) -> Reply:
        """Prints the answer as it comes. Until it begins, a passing line shows what is held for it."""
        waiting = asyncio.create_task(self._show_hold())
        reply: Reply | None = None
        try:
            async with aclosing(events) as stream:  # type: ignore[type-var]
                async for event in stream:
                    if isinstance(event, Begun):
                        await _ended(waiting)
                        self._print_causes("↪ ", event.skipped)
                    elif isinstance(event, Chunk) and event.text:
                        shown.append(event.text)
                        self._console.out(event.text, end="", highlight=False)
                    elif isinstance(event, Reply):
                        reply = event
        finally:
            await _ended(waiting)
        assert reply is not None, f"the stream of {request_id} ended without its reply"
        self._console.print()
        if not "".join(shown).strip():
            self._console.print("(the model answered nothing)", style="dim")
        return reply

    async def _show_hold(self) -> None:
        """One passing line while nothing has come yet: the budgets with the hold in them."""
        try:
            await asyncio.sleep(0.15)
            self._console.print(await self._bars(self._console.width - 1), end="\r")
            await asyncio.Event().wait()
        finally:
            self._console.out("\x1b[2K\r", end="", highlight=False)

    def _keep(self, question: Message, answer: str) -> None:
        if answer.strip():
            self._history += [question, {"role": "assistant", "content": answer}]

    def _recent(self) -> list[Message]:
        """The newest turns that fit `history_tokens`; the older ones are forgotten."""
        room = self._app.settings.telegram.history_tokens * BYTES_PER_TOKEN
        while self._history and sum(len(message["content"].encode()) for message in self._history) > room:
            del self._history[:2]
        return self._history

    def _refused(self, error: GatewayError, text: str, request_id: str) -> None:
        now = self._app.clock.now()
        said = notice(error, reader(self._app.settings), now)
        self._again, self._opens_at = text, said.opens_at
        self._console.print(said.text, style="yellow")
        if isinstance(error, ChainExhausted):
            self._print_causes("  ", error.causes)
        self._console.print(f"  (request {request_id})", style="dim")

    def _print_causes(self, mark: str, causes: Iterable[Cause]) -> None:
        now, zone = self._app.clock.now(), self._app.settings.zone
        for cause in causes:
            self._console.print(f"{mark}{cause.slot.provider}: {error_text(cause.error, zone, now)}", style="dim")

    async def _under(self, reply: Reply) -> Text:
        """The line under an answer: who, how many tokens, and the budgets."""
        line = Text("— ", style="dim")
        line.append(reply.slot.provider, style="bold")
        line.append(f" · {reply.usage.prompt:,} + {reply.usage.output:,} tokens", style="dim")
        if reply.clamped:
            line.append(" · shortened to what is left", style="yellow")
        if reply.cost_micro_usd:
            line.append(f" · {amount('micro_usd', reply.cost_micro_usd)}", style="dim")
        line.append(" · ", style="dim")
        return line + await self._bars(self._console.width - line.cell_len, reply.slot.provider)

    async def _bars(self, room: int, provider: str = "") -> Text:
        """The budgets as bars in at most `room` columns: those of this provider first, then the fullest."""
        now = self._app.clock.now()
        line = Text()
        balances = await self._balances()
        balances.sort(key=lambda one: (one.scope.get("provider") == provider, _fullness(one)), reverse=True)
        for balance in balances:
            part = Text("  " if line else "")
            part.append(f"{balance.name} ", style="dim")
            part.append(bar(balance.spent, balance.held, balance.limit, 8), style="green" if balance.left > 0 else "red")
            part.append(f" {amount(balance.unit, balance.spent)}/{amount(balance.unit, balance.limit)}", style="dim")
            if balance.held:
                part.append(f" +{amount(balance.unit, balance.held)} held", style="yellow")
            if balance.resets_at is not None and balance.resets_at > now:
                part.append(f" ↻{countdown((balance.resets_at - now).total_seconds())}", style="dim")
            if line and line.cell_len + part.cell_len > room:
                break
            line += part
        line.truncate(max(room, 1), overflow="ellipsis")
        return line

    async def _balances(self) -> list[Balance]:
        """The budgets that a question here may count in."""
        settings = self._app.settings
        chain, slots = settings.slots(self._target)
        wanted = {
            "provider": {slot.provider for slot in slots},
            "chain": {chain},
            "surface": {"cli"},
            "model": {s.model for s in slots},
        }
        found = await self._app.books.balances()
        return [
            balance
            for balance in found
            if all(value in wanted.get(kind, ()) or value == "*" for kind, value in balance.scope.items())
        ]

    async def _print_budgets(self) -> None:
        now, zone = self._app.clock.now(), self._app.settings.zone
        for balance in await self._balances():
            line = Text(f"{balance.name:<16} ")
            line.append(bar(balance.spent, balance.held, balance.limit), style="green" if balance.left > 0 else "red")
            spent, held, limit = (amount(balance.unit, value) for value in (balance.spent, balance.held, balance.limit))
            line.append(f" {spent} of {limit} {unit_name(balance.unit)} spent, {held} held")
            if balance.resets_at is not None:
                line.append(f"; resets {moment(balance.resets_at, zone, now)}", style="dim")
            self._console.print(line)


@contextlib.contextmanager
def _unechoed() -> Iterator[None]:
    """Keeps what is typed during an answer out of the answer: it is shown at the next prompt."""
    modes = termios.tcgetattr(sys.stdin)
    quiet = [*modes]
    quiet[3] = modes[3] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, modes)


def _fullness(balance: Balance) -> float:
    return (balance.spent + balance.held) / balance.limit if balance.limit > 0 else 1.0


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
