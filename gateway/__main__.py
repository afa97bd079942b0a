"""`python -m gateway` is the command `sluicegate`."""

import sys


def main() -> None:
    """Runs the command line. Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 budget exhausted."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter gets a question mark, never a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    from gateway.cli.commands import app

    app(prog_name="sluicegate")


if __name__ == "__main__":
    main()
