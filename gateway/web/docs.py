"""`/openapi.json` and `/docs`: the table of routes for programs and for people.

Both are the same on every installation and tell nothing of its configuration, so they need no key. The page has no script,
takes nothing from elsewhere, and its policy allows nothing but its own style.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from html import escape
from itertools import groupby

import orjson
from aiohttp import web

from gateway.web.api_schemas import SCHEMAS
from gateway.web.openapi import ABOUT, ROUTES, Entry, document

_STYLE = """
:root { color-scheme: light dark; background: Canvas; --line: #8886; --soft: #8882; --strong: #0a6cbd; }
@media (prefers-color-scheme: dark) { :root { --strong: #7cc0ff; } }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
a { color: var(--strong); }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; }
summary { cursor: pointer; padding: .6rem .8rem; }
summary code { font-weight: 600; }
summary b { display: inline-block; min-width: 3.5rem; color: var(--strong); }
details > div { padding: 0 .8rem .8rem; }
pre { background: var(--soft); padding: .6rem; border-radius: .4rem; white-space: pre-wrap; }
dt { font-family: ui-monospace, monospace; } dd { margin: 0 0 .4rem 1.2rem; }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Docs:
    """The two handlers. What they send is made once, with the application."""

    def __init__(self) -> None:
        self._document = orjson.dumps(document())
        self._page = "".join(_page()).encode()

    def routes(self) -> list[web.RouteDef]:
        """The routes."""
        return [web.get("/openapi.json", self.openapi), web.get("/docs", self.docs)]

    async def openapi(self, _: web.Request) -> web.Response:
        """The description for programs."""
        return web.Response(body=self._document, headers={"Content-Type": "application/json"})

    async def docs(self, _: web.Request) -> web.Response:
        """The description for people."""
        return web.Response(body=self._page, headers=_HEADERS)


def _page() -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sluicegate: the HTTP interface</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style></head><body><main><h1>Sluicegate: the HTTP interface</h1><p>{escape(ABOUT)}</p>"
    yield '<p>For programs: <a href="/openapi.json">openapi.json</a>.</p>'
    for group, entries in groupby(ROUTES, lambda entry: entry.group):
        yield f"<h2>{escape(group)}</h2>"
        for entry in entries:
            yield from _entry(entry)
    yield "<h2>Shapes</h2>"
    for name, schema in SCHEMAS.items():
        shown = escape(json.dumps(schema, indent=2, ensure_ascii=False))
        yield f'<details id="{name}"><summary><code>{name}</code></summary><div><pre>{shown}</pre></div></details>'
    yield "</main></body></html>"


def _entry(entry: Entry) -> Iterator[str]:
    yield f"<details><summary><b>{entry.method}</b> <code>{escape(entry.path)}</code><br>{escape(entry.does)}</summary><div>"
    yield f"<p>Who may: {escape(entry.door)}.</p>"
    if given := {**entry.query, **entry.headers}:
        yield "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(said)}</dd>" for name, said in given.items()) + "</dl>"
    if entry.body:
        yield f"<p>Body: {_shape(entry.body)}</p>"
    yield f"<pre>{escape(_curl(entry))}</pre><ul>"
    for status, kinds in entry.answers.items():
        yield f"<li>{status}: {' or '.join(map(_shape, kinds)) or 'nothing'}</li>"
    yield f"<li>else: {_shape(entry.error)}</li></ul></div></details>"


def _shape(kind: str) -> str:
    return f"<code>{escape(kind)}</code>" if "/" in kind else f'<a href="#{kind}">{kind}</a>'


def _curl(entry: Entry) -> str:
    lines = [f"curl -X {entry.method} http://127.0.0.1:8080{entry.path}"]
    if not entry.door.keyless:
        lines.append('-H "Authorization: Bearer $KEY"')
    if entry.body and entry.example is not None:
        lines.append('-H "Content-Type: application/json"')
        lines.append(f"-d '{json.dumps(entry.example)}'")
    return " \\\n    ".join(lines)
