"""What everything is compared with: aiohttp on both sides, uvloop, no budgets, nothing looked at.

python -m bench.passthrough PORT UPSTREAM_URL
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web

SESSION = web.AppKey("SESSION", aiohttp.ClientSession)
UPSTREAM = web.AppKey("UPSTREAM", str)


async def forward(request: web.Request) -> web.StreamResponse:
    """The request's bytes go up, the answer's bytes come down; a stream as it comes."""
    body = await request.read()
    headers = {"content-type": "application/json", "authorization": request.headers["authorization"]}
    url = request.app[UPSTREAM] + "/chat/completions"
    async with request.app[SESSION].post(url, data=body, headers=headers) as answer:
        if answer.content_type != "text/event-stream":
            return web.Response(body=await answer.read(), status=answer.status, content_type="application/json")
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        async for data in answer.content.iter_any():
            await response.write(data)
        await response.write_eof()
        return response


async def serve(port: int, upstream: str) -> None:
    app = web.Application()
    app[UPSTREAM] = upstream
    app[SESSION] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    app.router.add_post("/v1/chat/completions", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
