"""Forms that count: one that an impatient hand has sent twice is done once, and both are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from gateway.web.dashboard.visit import Answer, Visit

NUMBER = "sent"
"""The field with the number that each form has got with its page."""
NUMBER_MAX = 64
KEPT_S = 60.0
"""How long the same form is known again. A page that is gone back to is made anew, and its forms have new numbers."""


class Once:
    """The forms of the last minute, by session, address and number."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str, str], asyncio.Future[Answer]] = {}

    async def answer(self, visit: Visit, page: Callable[[Visit], Awaitable[Answer]]) -> Answer:
        """The page's answer; that of the first, where the same form was sent before. A form that failed may come again."""
        number = visit.form.get(NUMBER, "")[:NUMBER_MAX]
        if not number:
            return await page(visit)
        name = (visit.csrf, visit.request.path, number)
        doing = self._answers.get(name)
        if doing is None:
            # On its own: a browser gives up the first request when the second is sent, and that would cancel it.
            doing = self._answers[name] = asyncio.ensure_future(page(visit))
            doing.add_done_callback(partial(self._done, name))
        return await asyncio.shield(doing)

    def _done(self, name: tuple[str, str, str], doing: asyncio.Future[Answer]) -> None:
        if doing.cancelled() or doing.exception() is not None:
            del self._answers[name]
        else:
            asyncio.get_running_loop().call_later(KEPT_S, self._answers.pop, name)
