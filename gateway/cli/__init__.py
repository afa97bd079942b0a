"""The command line: `commands` names every command, the other files do the work and are imported when they are needed.

Rules:
- Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 budget exhausted.
- Answers go to standard output, everything else to standard error; `--json` puts one document on standard output.
- Nothing heavy is imported to show a help text.
"""
