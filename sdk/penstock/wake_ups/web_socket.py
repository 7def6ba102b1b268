"""One WebSocket without I/O, by the library `websockets`: bytes in and out, texts in and out.

`websockets` is imported when the first connection opens: a client that never waits does not pay for it.
"""

import logging
from collections.abc import Sequence

from penstock_core.limits import SDK_WAKE_UP_BYTES_MAX


class LinkLostError(Exception):
    """The connection is over, or was refused. The message says why."""


class WebSocket:
    """A connection to `url` that asks for the host `host`. Send what `take_output` returns after each call."""

    def __init__(self, url: str, host: str, subprotocols: Sequence[str]) -> None:
        from websockets.client import ClientProtocol
        from websockets.typing import Subprotocol
        from websockets.uri import parse_uri

        # The library logs each frame at DEBUG: headers with a session token among them.
        log = logging.getLogger("penstock.wake_ups.websocket")
        log.setLevel(logging.INFO)
        self._protocol = ClientProtocol(
            parse_uri(url),
            subprotocols=[Subprotocol(each) for each in subprotocols],
            max_size=SDK_WAKE_UP_BYTES_MAX,
            logger=log,
        )
        request = self._protocol.connect()
        del request.headers["Host"]
        request.headers["Host"] = host
        self._protocol.send_request(request)
        self._fragments: list[bytes] = []

    @property
    def is_open(self) -> bool:
        """The other side has answered the handshake, and nobody has closed the connection."""
        from websockets.protocol import State

        return self._protocol.state is State.OPEN

    def receive(self, data: bytes) -> list[str]:
        """The texts that these bytes complete. Raises LinkLostError after a refusal, a close or an error."""
        from websockets.frames import Frame, Opcode

        self._protocol.receive_data(data)
        texts: list[str] = []
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._fragments.append(bytes(event.data))
                if event.fin:
                    texts.append(b"".join(self._fragments).decode(errors="replace"))
                    self._fragments.clear()
        refusal = self._protocol.handshake_exc
        if refusal is not None:
            raise LinkLostError(f"the handshake failed: {refusal}")
        if self._protocol.close_expected():
            raise LinkLostError(f"closed: {self._protocol.parser_exc or self._protocol.close_rcvd}")
        return texts

    def send(self, text: str) -> None:
        """Send a text."""
        self._protocol.send_text(text.encode())

    def close(self) -> None:
        """Say goodbye, if the connection is open."""
        if self.is_open:
            self._protocol.send_close(1000)

    def take_output(self) -> bytes:
        """The bytes to send now."""
        return b"".join(self._protocol.data_to_send())
