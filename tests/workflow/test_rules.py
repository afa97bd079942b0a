"""Who may start a workflow, and who is meant by the words of `who`."""

import pytest

from gateway.errors import NotAllowed
from gateway.runs import Starter
from gateway.settings import WorkflowRules
from gateway.workflow.rules import among, may_start, require_start

ADMIN = Starter("telegram", "1001", admin=True)
LISTED = Starter("telegram", "1002")
GUEST = Starter("telegram", "1003", listed=False, chat="-100")
KEY = Starter("http", "app", key="app")
NAMED_LIKE_AN_ID = Starter("http", "1002", key="1002")
SHELL = Starter("cli", "somebody")
CLOCK = Starter("schedule", "nightly")


@pytest.mark.parametrize(
    ("who", "may"),
    [
        (WorkflowRules().who, {ADMIN, LISTED, KEY, NAMED_LIKE_AN_ID, SHELL, CLOCK}),
        (("admins",), {ADMIN, SHELL, CLOCK}),
        ((), {ADMIN, SHELL, CLOCK}),
        (("1002",), {ADMIN, LISTED, SHELL, CLOCK}),
        (("1003", "admins"), {ADMIN, GUEST, SHELL, CLOCK}),
    ],
)
def test_who_may_start(who: tuple[str, ...], may: set[Starter]) -> None:
    everybody = {ADMIN, LISTED, GUEST, KEY, NAMED_LIKE_AN_ID, SHELL, CLOCK}
    assert {one for one in everybody if may_start(one, WorkflowRules(who))} == may


def test_a_refusal_names_the_workflow_in_the_persons_language() -> None:
    with pytest.raises(NotAllowed, match="No puede iniciar digest aquí"):
        require_start("digest", Starter("telegram", "1003", listed=False, language="es"), WorkflowRules())


def test_the_starter_is_the_same_person_on_the_same_surface() -> None:
    assert among(("starter",), LISTED, LISTED)
    assert among(("starter",), Starter("telegram", "1002", chat="-100"), LISTED)
    assert not among(("starter",), NAMED_LIKE_AN_ID, LISTED)
    assert not among(("starter",), GUEST, LISTED)
    assert not among(("starter",), LISTED)
    assert not among(("starter",), Starter("cli"), Starter("cli"))
