"""Serves many emulated BMCs from one thread, one loopback port each."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from slurm_lifecycle.sandbox.bmc.certificates import Certificate
from slurm_lifecycle.sandbox.bmc.http import serve
from slurm_lifecycle.sandbox.bmc.simulator import BmcSimulator

_ADDRESS = "127.0.0.1"
_START_S = 30.0
# Thousands of clients may come at once; the kernel's own limit is lower where it is.
_BACKLOG = 128
T = TypeVar("T")


class BmcHost:
    """A thread with an event loop of its own; a context that always ends it."""

    def __init__(self, certificate: Certificate | None) -> None:
        """Without a certificate they speak plain HTTP."""
        self._context = None if certificate is None else certificate.server_context()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bmc-host", daemon=True)
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> BmcHost:
        """Started."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ended."""
        self.close()

    def start(self) -> None:
        """Begin to run; BMCs can be added before and after."""
        if self._thread.ident is None:
            self._thread.start()

    def add(self, simulator: BmcSimulator, port: int = 0) -> str:
        """Serve one more BMC; returns its address, such as `https://127.0.0.1:40001`."""

        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await serve(reader, writer, simulator.answer)

        async def listen() -> asyncio.Server:
            return await asyncio.start_server(
                client, _ADDRESS, port, ssl=self._context, backlog=_BACKLOG, limit=1 << 17
            )

        server = self._run(listen())
        self._servers.append(server)
        number = server.sockets[0].getsockname()[1]
        return f"{'http' if self._context is None else 'https'}://{_ADDRESS}:{number}"

    def call(self, what: Callable[[], T]) -> T:
        """Do something in the loop's thread, where the simulators live."""

        async def run() -> T:
            return what()

        return self._run(run())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        self.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_S)

    def close(self) -> None:
        """End every connection and the thread."""
        if not self._thread.is_alive():
            if not self._loop.is_closed():
                self._loop.close()
            return
        with contextlib.suppress(TimeoutError):
            self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_S)
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        mine = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not mine]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
