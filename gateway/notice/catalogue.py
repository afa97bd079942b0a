"""The catalogues: one .po file per language, read when a text of it is first wanted."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

FALLBACK = "en"
_FOLDER = files("gateway") / "locale"


def text(language: str, key: str, **fields: object) -> str:
    """The text of a key in the reader's language, its fields filled in. `language` is an IETF tag ("es-MX").

    What the language lacks is said in English. A key that English lacks is our own mistake: KeyError.
    """
    template = read(best(language)).get(key) or read(FALLBACK)[key]
    return template.format(**fields) if fields else template


@cache
def languages() -> tuple[str, ...]:
    """The languages that have a catalogue."""
    return tuple(sorted(entry.name for entry in _FOLDER.iterdir() if (entry / "LC_MESSAGES").is_dir()))


def best(language: str) -> str:
    """The catalogue for an IETF tag: es-MX has es, and what nobody has translated has English."""
    tag = language.replace("_", "-").lower()
    while tag:
        if tag in languages():
            return tag
        tag = tag.rpartition("-")[0]
    return FALLBACK


@cache
def read(language: str) -> dict[str, str]:
    """The texts of one catalogue by their keys; what is not translated yet is left out."""
    from babel.messages.pofile import read_po

    with (_FOLDER / language / "LC_MESSAGES" / "gateway.po").open("rb") as file:
        catalogue = read_po(file, locale=language)
    return {str(entry.id): str(entry.string) for entry in catalogue if entry.id and entry.string and not entry.fuzzy}
