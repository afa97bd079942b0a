"""The catalogues: complete in English and Spanish, with the same fields, and English for what is missing."""

import ast
import string
from pathlib import Path

import pytest

import gateway
from gateway.notice import Action, languages, text
from gateway.notice.catalogue import best, read

HOUSE = Path(gateway.__file__).parent


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def test_english_and_spanish_are_there() -> None:
    assert set(languages()) >= {"en", "es"}


@pytest.mark.parametrize("language", [one for one in languages() if one != "en"])
def test_every_text_is_translated_with_the_same_fields(language: str) -> None:
    english, other = read("en"), read(language)
    assert set(other) == set(english)
    assert {key: fields(other[key]) for key in english} == {key: fields(english[key]) for key in english}


def test_spanish_is_not_english() -> None:
    same = {key for key in read("en") if read("es")[key] == read("en")[key]}
    assert same <= {"format_weekday", "detail_other", "unit_tokens", "form_no", "report_tokens"}


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("es", "es"),
        ("es-MX", "es"),
        ("es_ES", "es"),
        ("ES-419", "es"),
        ("en-GB", "en"),
        ("fr", "en"),
        ("", "en"),
        ("zh-Hans-CN", "en"),
    ],
)
def test_a_tag_falls_back_to_its_language_and_then_to_english(tag: str, language: str) -> None:
    assert best(tag) == language
    assert text(tag, "cancelled") == read(language)["cancelled"]


def test_a_key_that_does_not_exist_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        text("en", "no_such_key")


def test_fields_are_filled_in_and_never_read_as_templates() -> None:
    assert text("en", "model_chosen", model="{evil} %s") == "{evil} %s answers here from now on."


def keys_in(call: ast.Call) -> list[str]:
    """The literal keys of a call of `text(language, key)` or `say(key)`, both ends of a conditional too."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    position = {"text": 1, "say": 0}.get(name)
    if position is None or len(call.args) <= position:
        return []
    key = call.args[position]
    ends = [key.body, key.orelse] if isinstance(key, ast.IfExp) else [key]
    return [end.value for end in ends if isinstance(end, ast.Constant) and isinstance(end.value, str)]


@pytest.mark.parametrize("room", ["notice", "telegram_bot", "workflow", "cli", "reports"])
def test_every_key_that_a_room_asks_for_exists(room: str) -> None:
    sources = (HOUSE / room).rglob("*.py")
    calls = [node for source in sources for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call)]
    assert {key for call in calls for key in keys_in(call)} <= set(read("en"))


def test_every_action_has_a_label() -> None:
    for language in languages():
        for action in Action:
            assert text(language, f"button_{action}")
