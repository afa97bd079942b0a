"""Serves the prices: `python -m petroserver --config FILE`."""

import argparse
import json
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from petroserver.prices import load


def main() -> None:
    """Reads the configuration and serves until it is stopped."""
    parser = argparse.ArgumentParser(prog="petroserver")
    parser.add_argument("--config", type=Path, required=True)
    file = parser.parse_args().config
    config = tomllib.loads(file.read_text())
    prices = load(file.parent / config["prices"])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            grade = self.path.removeprefix("/price/")
            found = grade in prices
            body = json.dumps({"grade": grade, "usd": str(prices[grade])} if found else {"error": "unknown grade"}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

    ThreadingHTTPServer(("", config["port"]), Handler).serve_forever()


if __name__ == "__main__":
    main()
