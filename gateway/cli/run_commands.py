"""The commands of runs: `run` starts one, `runs` looks at them and acts on them."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.core import TyperGroup

from gateway.cli.options import Config, Json
from gateway.cli.outcome import run

LIST = "list"


class Runs(TyperGroup):
    """`runs clone_petroserver` lists that workflow's runs: what is no command's name is a workflow's."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Puts `list` before what names no command."""
        if "--help" not in args and not any(word in self.commands for word in args):
            args = [LIST, *args]
        return super().parse_args(ctx, args)


runs_app = typer.Typer(cls=Runs, help="Look at runs of workflows, and act on them.")

RunId = Annotated[str, typer.Argument(metavar="ID", help="The run.")]
Caps = Annotated[
    list[str] | None,
    typer.Option(
        "--set-budget", metavar="UNIT=AMOUNT", help="What this run may spend: tokens=500k, usd=1.50, requests=20; more than once."
    ),
]

Follow = Annotated[bool, typer.Option("--follow", help="Show its steps until it ends or waits for a budget.")]


def start_run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The workflow; `sluicegate workflows` lists them.")],
    values: Annotated[
        list[str] | None, typer.Option("--set", metavar="PARAMETER=VALUE", help="A parameter; more than once.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="The same key means the same run.")] = None,
    follow: Follow = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Start nothing: show the steps that can be known, and whether they fit now.")
    ] = False,
    caps: Caps = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Start a workflow; exit code 3 when it waits for a budget."""
    from gateway.cli import run as work

    wanted = work.Wanted(name, tuple(values or ()), key, tuple(caps or ()))
    run(lambda: work.start(config, wanted, follow=follow, dry_run=dry_run, as_json=as_json))


@runs_app.command(LIST)
def list_runs(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this workflow's.")] = None,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only those in this state.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="So many, the newest first.")] = 50,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """The newest runs; `list` need not be written."""
    from gateway.cli import runs as work

    run(lambda: work.list_runs(config, name, state, limit, as_json=as_json))


@runs_app.command("show")
def show(id: RunId, config: Config = None, as_json: Json = False) -> None:
    """One run: its steps, what it waits for, what it cost, what it asks."""
    from gateway.cli import runs as work

    run(lambda: work.show_run(config, id, as_json=as_json))


@runs_app.command("cancel")
def cancel(id: RunId, config: Config = None, as_json: Json = False) -> None:
    """Stop a run for good."""
    from gateway.cli import runs as work

    run(lambda: work.cancel(config, id, as_json=as_json))


@runs_app.command("retry")
def retry(id: RunId, caps: Caps = None, follow: Follow = False, config: Config = None, as_json: Json = False) -> None:
    """Let a failed run go on from the step that failed."""
    from gateway.cli import runs as work

    run(lambda: work.retry(config, id, caps or [], follow=follow, as_json=as_json))


Question = Annotated[str, typer.Argument(metavar="ID", help="The run, or its question where it asks several.")]


@runs_app.command("approve")
def approve(id: Question, config: Config = None, as_json: Json = False) -> None:
    """Say yes to what a run asks."""
    from gateway.cli import runs as work

    run(lambda: work.decide(config, id, approve=True, as_json=as_json))


@runs_app.command("reject")
def reject(id: Question, config: Config = None, as_json: Json = False) -> None:
    """Say no to what a run asks."""
    from gateway.cli import runs as work

    run(lambda: work.decide(config, id, approve=False, as_json=as_json))


@runs_app.command("signal")
def signal(
    id: RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the run waits for.")],
    data: Annotated[str, typer.Option("--data", metavar="JSON", help="What it is told.")] = "null",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Tell a run what it waits for."""
    from gateway.cli import runs as work

    run(lambda: work.signal(config, id, name, data, as_json=as_json))
