"""The one drawing of spending: what each hour or day took, stacked by provider, with the limit as a line.

`svg` is an SVG of presentation attributes alone, so that it also stands in a page with a strict content policy; `png` is the
same as a picture. Text vanishes without a font, so the font travels with the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import as_file, files

from gateway.budget import Unit
from gateway.reports.words import amount, shortened, tick

FONT = "DejaVu Sans"
WIDTH, HEIGHT = 800, 640
"""Letters are as large as a phone wants them, which shows all of it in half of this width."""
ZOOM = 1.6
"""What makes a picture as wide as Telegram keeps it."""
LEFT, RIGHT, TOP, BOTTOM = 134, 24, 178, 146
TITLE, SUBTITLE, SMALL = 34, 25, 22
"""The sizes of letters."""
BAR_MAX = 64
"""As wide as a bar is at most."""
HEADING = 210
"""As wide as the heading of the present period is at most."""
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c564b")
"""Told apart by people who see colours differently, and on light and dark."""
SERIES_MAX = len(COLOURS)
REST_COLOUR = "#909090"
NAME_MAX = 14
TICK_LETTERS = 9
"""So many letters have room before the plot; more are made smaller."""
IN_A_ROW = 3
FAR = 3
"""A limit that is further above the highest bar than this many times is named and not drawn: it would flatten the bars."""


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours that are not those of the bars."""

    paper: str
    ink: str
    faint: str
    shade: str
    limit: str


LIGHT = Theme("#ffffff", "#1b1f24", "#d0d5db", "#f1f4f8", "#c0272d")
PAGE = Theme(
    "var(--chart-paper, none)",
    "var(--chart-ink, currentColor)",
    "var(--chart-faint, #d0d5db)",
    "var(--chart-shade, none)",
    "var(--chart-limit, #c0272d)",
)
"""The colours of the page that it stands in, light or dark: its style sheet gives these names their values."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One hour or day: what each series took, and what is written under it ("" for nothing)."""

    values: Mapping[str, int]
    label: str = ""
    said: str = ""
    """When it was, for whoever points at it; "" where nobody can."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit per bar, in the chart's unit."""

    value: int
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn."""

    title: str
    subtitle: str
    unit: Unit
    bars: Sequence[Bar]
    headings: tuple[str, str]
    """Over the bars before and behind the border."""
    border: int
    """The index of the first bar behind the border; their number where there is none."""
    limit: Limit | None = None
    rest: str = "other"
    """What the series that have no colour of their own are called together."""
    language: str = "en"


def svg(chart: Chart, theme: Theme = LIGHT) -> str:
    """The drawing as SVG text."""
    names, bars = _series(chart)
    top, step = _scale(chart, bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="{FONT}, sans-serif">',
        f"<title>{escape(_plain(chart.title))}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{theme.paper}"/>',
        _text(24, 48, chart.title, TITLE, theme.ink, weight="bold"),
        _text(24, 84, chart.subtitle, SUBTITLE, theme.ink),
        *_frame(chart, theme, top, step),
        *_stacks(chart, bars, top),
        *_under(chart, theme),
        *_limit(chart, theme, top),
        *_legend(names, theme),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part)


def png(chart: Chart) -> bytes:
    """The drawing as a picture, ZOOM times as large."""
    # Where nothing is drawn nobody pays for loading it.
    import resvg_py

    drawn = svg(chart)
    with as_file(files("gateway.reports") / "fonts" / "DejaVuSans.ttf") as font:
        return bytes(resvg_py.svg_to_bytes(drawn, zoom=ZOOM, font_files=[str(font)], font_family=FONT, skip_system_fonts=True))


Part = tuple[str, str, int]
"""Of a bar: its series, its colour and its value."""


def _series(chart: Chart) -> tuple[list[tuple[str, str]], list[list[Part]]]:
    """Each series with its colour, the greatest first; and each bar from the ground up."""
    sums: dict[str, int] = {}
    for bar in chart.bars:
        for name, value in bar.values.items():
            sums[name] = sums.get(name, 0) + value
    ranked = sorted((name for name in sums if sums[name]), key=lambda name: (-sums[name], name))
    shown = ranked if len(ranked) <= SERIES_MAX else ranked[: SERIES_MAX - 1]
    colours = dict(zip(shown, COLOURS, strict=False))
    names = [(name, colours[name]) for name in shown]
    bars = []
    for bar in chart.bars:
        stack = [(name, colours[name], bar.values.get(name, 0)) for name in shown]
        stack.append((chart.rest, REST_COLOUR, sum(value for name, value in bar.values.items() if name not in colours)))
        bars.append([part for part in stack if part[2] > 0])
    if len(ranked) > len(shown):
        names.append((chart.rest, REST_COLOUR))
    return names, bars


def _scale(chart: Chart, bars: Sequence[Sequence[Part]]) -> tuple[int, int]:
    """The value at the top of the plot, and the space between its ticks, which divides it evenly."""
    highest = max((sum(value for _, _, value in bar) for bar in bars), default=0)
    if chart.limit is not None and _drawn(chart.limit, highest):
        highest = max(highest, chart.limit.value)
    step = _step(highest)
    return step * max(1, -(-highest * 21 // (20 * step))), step


def _drawn(limit: Limit, highest: int) -> bool:
    return 0 < limit.value <= FAR * max(highest, 1)


def _step(highest: int) -> int:
    """The space between ticks: one, two or five of some power of ten, and about four of them."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if step * factor * 5 >= highest:
                return step * factor
        step *= 10


def _y(value: int, top: int) -> float:
    return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)


def _slot(chart: Chart) -> float:
    return (WIDTH - LEFT - RIGHT) / max(len(chart.bars), 1)


def _frame(chart: Chart, theme: Theme, top: int, step: int) -> list[str]:
    parts, border = [], LEFT + chart.border * _slot(chart)
    if chart.border < len(chart.bars):
        parts.append(
            f'<rect x="{border:.1f}" y="{TOP - 34}" width="{WIDTH - RIGHT - border:.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM + 34}" fill="{theme.shade}"/>'
        )
        # Where the bars behind the border are few, their heading ends with them.
        room = WIDTH - RIGHT - border >= HEADING
        x, anchor = (border + 8, "start") if room else (WIDTH - RIGHT - 4, "end")
        parts.append(_text(x, TOP - 10, chart.headings[1], SMALL, theme.ink, anchor=anchor))
    parts.append(_text(LEFT + 4, TOP - 10, chart.headings[0], SMALL, theme.ink))
    for value in range(0, top + 1, step):
        y = _y(value, top)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{theme.faint}" stroke-width="{2 if not value else 1}"/>')
        said = tick(chart.language, chart.unit, value, step)
        size = min(SMALL, SMALL * TICK_LETTERS // len(said))
        parts.append(_text(LEFT - 10, y + 8, said, size, theme.ink, anchor="end"))
    return parts


def _stacks(chart: Chart, bars: Sequence[Sequence[Part]], top: int) -> list[str]:
    slot = _slot(chart)
    wide, parts = min(max(slot * 0.78, 1.5), BAR_MAX), []
    for number, bar in enumerate(bars):
        x, ground = LEFT + number * slot + (slot - wide) / 2, 0
        for name, colour, value in bar:
            low, high = _y(ground, top), _y(ground + value, top)
            box = f'<rect x="{x:.1f}" y="{high:.1f}" width="{wide:.1f}" height="{low - high:.1f}" fill="{colour}"'
            parts.append(f"{box}>{_pointed(chart, number, name, value)}</rect>" if chart.bars[number].said else f"{box}/>")
            ground += value
    return parts


def _pointed(chart: Chart, number: int, name: str, value: int) -> str:
    """What a pointer over a part of a bar is told."""
    said = f"{chart.bars[number].said} {name}: {amount(chart.language, chart.unit, value)}"
    return f"<title>{escape(_plain(said))}</title>"


def _under(chart: Chart, theme: Theme) -> list[str]:
    slot = _slot(chart)
    return [
        _text(LEFT + (number + 0.5) * slot, HEIGHT - BOTTOM + 30, bar.label, SMALL, theme.ink, anchor="middle")
        for number, bar in enumerate(chart.bars)
        if bar.label
    ]


def _limit(chart: Chart, theme: Theme, top: int) -> list[str]:
    limit = chart.limit
    if limit is None:
        return []
    if limit.value > top or limit.value <= 0:
        return [_text(24, 120, f"↑ {limit.label}", SMALL, theme.limit)]
    y = _y(limit.value, top)
    return [
        f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{theme.limit}" stroke-width="3" stroke-dasharray="12 7"/>',
        _text(24, 120, f"- - {limit.label}", SMALL, theme.limit),
    ]


def _legend(names: Sequence[tuple[str, str]], theme: Theme) -> list[str]:
    """In two rows."""
    parts, across = [], (WIDTH - 48) / IN_A_ROW
    for number, (name, colour) in enumerate(names):
        row, column = divmod(number, IN_A_ROW)
        x, y = 24 + column * across, HEIGHT - 64 + row * 38
        parts.append(f'<rect x="{x:.1f}" y="{y - 18}" width="22" height="22" rx="3" fill="{colour}"/>')
        parts.append(_text(x + 30, y + 1, shortened(name, NAME_MAX), SMALL, theme.ink))
    return parts


def _text(x: float, y: float, said: str, size: int, colour: str, anchor: str = "start", weight: str = "normal") -> str:
    if not said:
        return ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{colour}">'
        f"{escape(_plain(said))}</text>"
    )


def _plain(said: str) -> str:
    """Without what XML cannot hold at all, such as a bell."""
    return "".join(letter if letter.isprintable() else " " for letter in said if letter.isprintable() or letter.isspace())
