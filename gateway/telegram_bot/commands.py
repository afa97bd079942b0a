"""What everybody who is let in may ask of the bot by command."""

from __future__ import annotations

import structlog
from telegram import Bot

from gateway.errors import UnknownTarget
from gateway.telegram_bot.access import Door
from gateway.telegram_bot.answering import Question, answer
from gateway.telegram_bot.buttons import CHOOSE_MODEL, LABEL_MAX
from gateway.telegram_bot.desk import Desk, Work
from gateway.telegram_bot.exhausted import make_button
from gateway.telegram_bot.menu import set_admin_menu
from gateway.telegram_bot.waiting import of_asker, retouch

log = structlog.get_logger()

MODELS_MAX = 20


async def start(desk: Desk, door: Door, bot: Bot, work: Work, arguments: list[str]) -> None:
    """Greets, or takes a pairing code from the one who becomes the first admin."""
    if work.private and arguments and not work.standing.admin:
        made = await door.pair(work, arguments[0])
        if made is not None:
            await _say(desk, work, work.say("paired" if made else "wrong_code"))
        if made:
            await set_admin_menu(bot, work.letter.user_id)
        if made is not None:
            return
    if not work.standing.may:
        await door.turn_away(work)
        return
    await _say(desk, work, work.say("welcome"))


async def help_(desk: Desk, work: Work) -> None:
    """Lists what can be asked."""
    await _say(desk, work, work.say("help_admin" if work.standing.admin else "help"))


async def show_id(desk: Desk, work: Work) -> None:
    """Says the numeric ids that allow-lists are made of."""
    if work.private:
        await _say(desk, work, work.say("your_id", id=work.letter.user_id))
    else:
        await _say(desk, work, work.say("chat_id", id=work.letter.user_id, chat=work.lane.chat_id))


async def new(desk: Desk, work: Work) -> None:
    """Begins a new conversation."""
    await desk.talk.forget(work.lane)
    await _say(desk, work, work.say("new_conversation"))


async def stop(desk: Desk, work: Work) -> None:
    """Ends the answer that is being made; what was shown of it stays."""
    running = desk.running.get(work.lane)
    if running is None:
        await _say(desk, work, work.say("nothing_to_stop"))
        return
    if not work.private and not work.standing.admin and running.user_id != work.letter.user_id:
        await _say(
            desk, work, work.say("not_yours_to_stop", name=work.message.from_user.first_name if work.message.from_user else "")
        )
        return
    running.stopped = True
    running.task.cancel()
    work.outcome = "stopped"


async def cancel(desk: Desk, work: Work) -> bool:
    """Lets go of the person's questions that wait in this chat, and of the answer that is being made; False: there were none."""
    waiting = await desk.inbox.waiting(work.lane.chat_id, work.letter.user_id)
    for letter in waiting:
        await desk.inbox.finish(letter.update_id, "cancelled")
    running = desk.running.get(work.lane)
    stopped = running is not None and running.user_id == work.letter.user_id
    if running is not None and stopped:
        running.stopped = True
        running.task.cancel()
    if waiting:
        await _say(desk, work, work.say("cancelled"))
    for letter in waiting:
        await retouch(desk, letter, of_asker(desk, work, letter).say("cancelled"))
    return stopped or bool(waiting)


async def retry(desk: Desk, work: Work) -> None:
    """Asks the last question again; the new answer takes the place of the old one."""
    last = await desk.talk.last(work.lane)
    if last is None:
        await _say(desk, work, work.say("nothing_to_retry"))
        return
    await answer(desk, work, Question(last.question, instead_of=last.request_id))


async def model(desk: Desk, work: Work, arguments: list[str]) -> None:
    """Shows what can answer, with a button for each, or chooses one by name."""
    if arguments:
        try:
            desk.settings.slots(arguments[0])
        except UnknownTarget as error:
            await _say(desk, work, work.say("model_unknown", model=arguments[0][:LABEL_MAX], known=", ".join(error.known)))
            return
        await desk.talk.choose(work.lane, arguments[0])
        await _say(desk, work, work.say("model_chosen", model=arguments[0]))
        return
    names = [*desk.settings.chains, *(name for name in desk.settings.providers if name not in desk.settings.chains)][:MODELS_MAX]
    buttons = [make_button(work.letter, CHOOSE_MODEL, name) for name in names]
    await desk.inbox.add_buttons(buttons, desk.now_ms())
    chosen = await desk.talk.choice(work.lane) or desk.settings.telegram.chain
    keyboard = [[(name[:LABEL_MAX], button.token)] for name, button in zip(names, buttons, strict=True)]
    await desk.delivery.say(work.place, work.say("model_now", model=chosen), keyboard)
    work.outcome = "told"


async def unknown(desk: Desk, work: Work) -> None:
    """A command that there is not: said in private or when it names us; else it may be meant for another bot."""
    if work.private or "@" in (work.message.text or "").split()[0]:
        await _say(desk, work, work.say("unknown_command"))


async def _say(desk: Desk, work: Work, said: str) -> None:
    work.outcome = "told"
    await desk.delivery.say(work.place, said)
