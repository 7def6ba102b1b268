"""Server-sent events: a thread waits for what happens, and the loop sends it."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web

from penstock.console.background import ServiceDownError
from penstock.console.guard import HEADERS
from penstock.console.page import Asked, Event, Stream
from penstock_core.errors import PenstockError
from penstock_core.limits import CONSOLE_STREAMS_MAX

logger = logging.getLogger("penstock.console")


class Streaming:
    """The live views of one console, `CONSOLE_STREAMS_MAX` at once."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(CONSOLE_STREAMS_MAX, thread_name_prefix="penstock-stream")
        self._open = 0
        self._is_stopped = False

    def stop(self) -> None:
        """End all streams at their next event."""
        self._is_stopped = True

    def close(self) -> None:
        """Wait for the streams' threads."""
        self._threads.shutdown(cancel_futures=True)

    async def send(self, request: web.Request, stream: Stream, asked: Asked) -> web.StreamResponse:
        """Send the events until the browser goes or the stream ends. An error is its last event."""
        if self._open >= CONSOLE_STREAMS_MAX:
            return web.Response(status=429, text=f"The console has {CONSOLE_STREAMS_MAX} live views already.")
        self._open += 1
        try:
            return await self._send(request, stream.events(asked))
        finally:
            self._open -= 1

    async def _send(self, request: web.Request, events: Iterator[Event | None]) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
        loop = asyncio.get_running_loop()
        try:
            await response.prepare(request)
            while not self._is_stopped:
                data = await loop.run_in_executor(self._threads, _next_message, events)
                if data is None:
                    break
                await response.write(data)
        except ConnectionError:
            pass  # the browser has gone
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                with contextlib.suppress(RuntimeError):  # the generator's thread is still in it: it ends by itself
                    await asyncio.shield(loop.run_in_executor(self._threads, close))
        return response


def _next_message(events: Iterator[Event | None]) -> bytes | None:
    """The next message as bytes; None at the end."""
    try:
        event = next(events)
    except StopIteration:
        return None
    except PenstockError as error:
        return _message({"error": str(error)}, "failed")
    except ServiceDownError as down:
        return _message({"error": str(down.error)}, "failed")
    except Exception as error:  # the edge: the page must hear of a defect
        logger.exception("a live view has failed in an unexpected way")
        return _message({"error": f"the console has a defect: {type(error).__name__}"}, "failed")
    return b": alive\n\n" if event is None else _message(event, "message")


def _message(event: Event, name: str) -> bytes:
    return f"event: {name}\ndata: {json.dumps(event)}\n\n".encode()
