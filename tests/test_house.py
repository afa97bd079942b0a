"""The house stands as drawn in docs/architecture.md: floors, one reader of the time, one way to a provider."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "gateway"
FLOORS = (
    {"errors", "clock", "settings", "chat", "budget", "amounts", "cron", "logs", "runs"},
    {"estimate", "prices", "ledger", "notice", "forecast", "story"},
    {"store", "providers", "effects"},
    {"dispatcher", "workflow"},
    {"telegram_bot", "web", "reports", "schedules", "alerts"},
    {"cli", "app", "jobs", "signals", "reloading", "readiness", "__main__"},
)
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms} | {"__init__": 0}
NEIGHBOURS = {("workflow", "dispatcher")}
"""On F3 one room uses the other: a workflow's questions go through the same gate as everybody's."""
PURE_MEANS_WITHOUT = {
    "asyncio",
    "time",
    "random",
    "secrets",
    "socket",
    "threading",
    "sqlite3",
    "sqlalchemy",
    "aiohttp",
    "os",
    "logging",
    "structlog",
}
IO_LIBRARIES = {"aiohttp", "sqlalchemy", "httpx", "socket", "psycopg", "sqlite3", "telegram"}
READS_TIME = {("time", name) for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "process_time")} | {
    ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"),
}  # fmt: skip
FILES = sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    """The room a file belongs to: the first part of its path under `gateway`."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Each imported module, and whether only the type checker sees it."""
    tree = ast.parse(path.read_text())
    typing_only = {
        node for block in ast.walk(tree) if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((name.name, node in typing_only) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"gateway.{name.name}" for name in node.names] if node.module == "gateway" else [node.module]
            yield from ((name, node in typing_only) for name in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_from_lower_floors(path: Path):
    room = room_of(path)
    assert room in FLOOR_OF, f"{room} has no floor"
    floor = FLOOR_OF[room]
    for module, typing_only in imports(path):
        parts = module.split(".")
        if parts[0] == "gateway" and len(parts) > 1 and parts[1] not in (room, "__version__") and not typing_only:
            other = FLOOR_OF[parts[1]]
            neighbour = other == floor and (floor in (0, 1, 5) or (room, parts[1]) in NEIGHBOURS)
            assert other < floor or neighbour, f"{path.name} of {room} imports {module}"
        if floor <= 1 and room not in ("clock", "logs"):
            assert parts[0] not in PURE_MEANS_WITHOUT, f"{path.name} imports {module}"
        if floor == 3:
            assert parts[0] not in IO_LIBRARIES, f"{path.name} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_clock_reads_the_time_and_only_the_dispatcher_calls_a_provider(path: Path):
    room = room_of(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        called_on, name = ast.unparse(node.func.value), node.func.attr
        if room != "clock":
            assert (called_on.rpartition(".")[2], name) not in READS_TIME, f"{path.name}:{node.lineno} reads the time"
        if name in ("complete", "stream", "embed") and room not in ("dispatcher", "providers"):
            assert called_on.endswith("dispatcher"), f"{path.name}:{node.lineno} calls {called_on}.{name} past the gate"
