"""Every command's name, options and help. Each imports what it needs when it is called, so that help comes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway import __version__
from gateway.cli.options import Config, Json
from gateway.cli.outcome import Debug, run
from gateway.cli.run_commands import runs_app, start_run

app = typer.Typer(
    help="Sluicegate: a Telegram and workflow bot gateway that cannot overspend.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
budgets_app = typer.Typer(help="Every budget: spent, held, left, and when it resets.")
ledger_app = typer.Typer(help="Prove or correct the counters.", no_args_is_help=True)
keys_app = typer.Typer(help="Keys for the HTTP interface.", no_args_is_help=True)
db_app = typer.Typer(help="The database's migrations.", no_args_is_help=True)
app.add_typer(budgets_app, name="budgets", invoke_without_command=True)
app.add_typer(ledger_app, name="ledger")
app.add_typer(keys_app, name="keys")
app.add_typer(db_app, name="db")
app.add_typer(runs_app, name="runs")
app.command("run")(start_run)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sluicegate {__version__}")
        raise typer.Exit


@app.callback()
def main(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Sluicegate: a Telegram and workflow bot gateway that cannot overspend."""
    Debug.on = debug


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where the files are written.")] = Path(),
) -> None:
    """Ask five questions and write a commented sluicegate.toml and .env."""
    from gateway.cli import init as work

    run(lambda: work.init(directory))


@app.command()
def serve(
    config: Config = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="ROLES", help="Some of bot,web,worker,scheduler; default: all.")
    ] = None,
) -> None:
    """Serve the Telegram bot, the HTTP interface, workflows and schedules until stopped."""
    from gateway.cli import serve as work

    run(lambda: work.serve(config, only))


@app.command()
def demo() -> None:
    """Try it: the built-in configuration, with a chat on a terminal."""
    from gateway.cli import demo as work

    run(work.demo)


@app.command()
def check(
    config: Config = None,
    online: Annotated[bool, typer.Option("--online", help="Also make one gated call of 1 token per provider.")] = False,
    as_json: Json = False,
) -> None:
    """Validate the configuration; print budgets, chains and where each key comes from."""
    from gateway.cli import check as work

    run(lambda: work.check(config, online=online, as_json=as_json))


@app.command()
def chat(
    text: Annotated[
        str | None, typer.Argument(help="What to ask; without it, a chat on a terminal, else standard input.")
    ] = None,
    chain: Annotated[str, typer.Option("--chain", metavar="CHAIN", help="A chain, provider or provider:model.")] = "",
    stream: Annotated[bool, typer.Option("--stream", help="Print the answer as it comes.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Ask once, through the gate; exit code 3 when the budget is exhausted."""
    from gateway.cli import chat as work

    run(lambda: work.chat(config, text, chain, stream=stream, as_json=as_json))


@budgets_app.callback()
def budgets(context: typer.Context, config: Config = None, as_json: Json = False) -> None:
    """Every budget: spent, held, left, and when it resets."""
    if context.invoked_subcommand is None:
        from gateway.cli import budgets as work

        run(lambda: work.show_budgets(config, as_json=as_json))
    else:
        context.obj = config


@budgets_app.command("raise")
def budgets_raise(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The budget.")],
    change: Annotated[str, typer.Argument(metavar="CHANGE", help="+50k adds, +20% adds a part of the limit, =300k replaces it.")],
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 30m, 2h, 1d.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Raise a limit for a while; in force everywhere within a second."""
    from gateway.cli import budgets as work

    run(lambda: work.raise_budget(config or context.obj, name, change, duration, as_json=as_json))


@budgets_app.command("history")
def budgets_history(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The budget.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Every raise and correction of a budget."""
    from gateway.cli import budgets as work

    run(lambda: work.history(config or context.obj, name, as_json=as_json))


@app.command()
def why(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The id that came with the answer or the notice.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Say, slot by slot, what the gate decided about a request and how it ended."""
    from gateway.cli import why as work

    run(lambda: work.why(config, request_id, as_json=as_json))


@app.command()
def explain(
    text: Annotated[str, typer.Argument(help="What would be asked.")],
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="Who would ask: a Telegram id or a key's name.")
    ] = None,
    chain: Annotated[str, typer.Option("--chain", metavar="CHAIN", help="A chain, provider or provider:model.")] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Say what the gate would decide about a request now. Nobody is called."""
    from gateway.cli import explain as work

    run(lambda: work.explain(config, text, user, chain, as_json=as_json))


@app.command()
def usage(
    by: Annotated[
        str | None, typer.Option("--by", metavar="FIELDS", help="Fields to group by.  [default: provider,model]")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="A date or an instant.  [default: the month's first]")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="A date, which is counted whole, or the instant of the end.")
    ] = None,
    config: Config = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output.")] = False,
    rows: Annotated[
        str | None, typer.Option("--rows", metavar="FORMAT", help="The rows themselves, not sums: csv or jsonl.")
    ] = None,
) -> None:
    """Sum the usage rows, or export them."""
    from gateway.cli import usage as work

    if rows is not None:
        run(lambda: work.export(config, rows, since, until, summed=by is not None or as_json or as_csv))
        return
    groups = "provider,model" if by is None else by
    run(lambda: work.usage(config, groups, since, until, as_json=as_json, as_csv=as_csv))


@app.command()
def audit(
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="NAME", help="Only what was changed of this budget, key or person.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="WHO", help="Only somebody (telegram:1001), or a surface (telegram, http, cli, console)."),
    ] = None,
    action: Annotated[str | None, typer.Option("--action", metavar="NAME", help="Only this: raise, allow, reload …")] = None,
    since: Annotated[str | None, typer.Option("--from", metavar="TIME", help="A date or an instant.")] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="A date, which is counted whole, or the instant of the end.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="How many, the newest first.")] = 100,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show who changed what, newest first."""
    from gateway.cli import audit as work

    run(lambda: work.audit(config, work.Wanted(subject, by, action, since, until, limit), as_json=as_json))


@app.command()
def report(
    period: Annotated[str, typer.Option("--period", metavar="PERIOD", help="day, week or month.")] = "day",
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="text, png, csv or json.")] = "text",
    send: Annotated[bool, typer.Option("--send", help="Send it to where the [[reports]] of this period go.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Tell of the previous whole period and the present one so far, on standard output."""
    from gateway.cli import report as work

    run(lambda: work.report(config, period, "json" if as_json else format_, send=send))


@app.command()
def reports(config: Config = None, as_json: Json = False) -> None:
    """Every report that is sent by the clock: when next, and what became of the last one."""
    from gateway.cli import report as work

    run(lambda: work.reports(config, as_json=as_json))


@app.command()
def workflows(config: Config = None, as_json: Json = False) -> None:
    """Every workflow that can be started, with its parameters."""
    from gateway.cli import workflows as work

    run(lambda: work.show_workflows(config, as_json=as_json))


@ledger_app.command("check")
def ledger_check(config: Config = None, as_json: Json = False) -> None:
    """Recompute every counter from the usage rows; exit code 1 when one differs."""
    from gateway.cli import ledger as work

    run(lambda: work.check(config, as_json=as_json))


@ledger_app.command("adjust")
def ledger_adjust(
    budget: Annotated[str, typer.Argument(metavar="BUDGET", help="The budget.")],
    spent: Annotated[
        str, typer.Option("--spent", metavar="N", help="What to add (+N) or take off (-N), in the configuration's unit.")
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the entry.")],
    scope: Annotated[
        list[str] | None, typer.Option("--scope", metavar="KIND=VALUE", help="Which counter of a `*` budget, e.g. user=1002.")
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Correct what a budget has spent, as a new entry with a reason."""
    from gateway.cli import ledger as work

    run(lambda: work.adjust(config, budget, spent, reason, scope or [], as_json=as_json))


@app.command("login-link")
def login_link(config: Config = None, as_json: Json = False) -> None:
    """Print a link that opens the web console, once and within an hour."""
    from gateway.cli import login_link as work

    run(lambda: work.login_link(config, as_json=as_json))


@keys_app.command("create")
def keys_create(
    name: Annotated[str, typer.Argument(help="Who uses it; budgets of `user` and `key` know it by this name.")],
    admin: Annotated[bool, typer.Option("--admin", help="It may do everything.")] = False,
    may: Annotated[
        str | None,
        typer.Option(
            metavar="ask,run,read",
            help="What it may: ask models, run workflows, read budgets and usage. Without this: ask,run.",
        ),
    ] = None,
    chain: Annotated[
        list[str] | None,
        typer.Option(help="A chain, provider or provider:model that it may use; more than once. Without this: all."),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make a key. It is shown once."""
    from gateway.cli import keys as work

    run(lambda: work.create(config, name, admin=admin, may=may, chains=chain or [], as_json=as_json))


@keys_app.command("list")
def keys_list(config: Config = None, as_json: Json = False) -> None:
    """Every key's name, without the key."""
    from gateway.cli import keys as work

    run(lambda: work.list_keys(config, as_json=as_json))


@keys_app.command("revoke")
def keys_revoke(
    name: Annotated[str, typer.Argument(help="The key's name.")], config: Config = None, as_json: Json = False
) -> None:
    """Make a key useless, at once."""
    from gateway.cli import keys as work

    run(lambda: work.revoke(config, name, as_json=as_json))


@db_app.command("upgrade")
def db_upgrade(config: Config = None) -> None:
    """Bring the database to the newest migration."""
    from gateway.cli import database as work

    run(lambda: work.upgrade_database(config))
