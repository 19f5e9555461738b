"""Connections of the live page: a limited number, and none that waits for its client for ever."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

MAX_CONNECTIONS = 128
STALL_SECONDS = 10.0  # for a client to send a request, or to read some of an answer
WAIT_SECONDS = 120.0  # for a client to read a whole answer
CHECK_SECONDS = 1.0


class PatientProtocol(H11Protocol):
    """A connection that ends when its client neither sends nor reads.

    If there are too many connections, the one idle longest is closed. So a flood of slow clients
    pushes out its own connections, not one that asks and reads.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self.seen: RequestResponseCycle | None = None
        self.unsent = 0
        self.moved_at = self.loop.time()
        self.free_at = self.loop.time()  # when the server last waited for nothing from the client
        close_idlest(self.connections)
        self.timer = self.loop.call_later(CHECK_SECONDS, self.check_stall)

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self.moved_at = self.loop.time()
        super().resume_writing()

    @property
    def waits_for_client(self) -> bool:
        """Whether it is the client's turn to send or to read."""
        is_idle = self.cycle is None or self.cycle.response_complete
        return is_idle or self.transport.get_write_buffer_size() > 0

    def check_stall(self) -> None:
        """End the connection if nothing has moved for too long, else check again later."""
        now = self.loop.time()
        unsent = self.transport.get_write_buffer_size()
        if unsent < self.unsent:
            self.moved_at = now
        if self.cycle is not self.seen or not self.waits_for_client:
            self.moved_at = now
            self.free_at = now
        self.seen = self.cycle
        self.unsent = unsent

        if now - self.moved_at > STALL_SECONDS or now - self.free_at > WAIT_SECONDS:
            self.transport.abort()
        else:
            self.timer = self.loop.call_later(CHECK_SECONDS, self.check_stall)


def close_idlest(connections: Iterable[object]) -> None:
    """End the connection that is idle longest, if there are too many."""
    ours = [each for each in connections if isinstance(each, PatientProtocol)]
    still_open = [each for each in ours if not each.transport.is_closing()]
    if len(still_open) > MAX_CONNECTIONS:
        longest = min(still_open, key=lambda each: (not each.waits_for_client, each.free_at))
        longest.transport.abort()
