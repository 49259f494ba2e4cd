"""The moving parts of one server: waiting workers, watchers of jobs, and lost leases.

The hub runs in the event loop; the queue's blocking calls run in threads. Changes by this server wake the hub at once,
changes by another server within a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from anyio.to_thread import run_sync

from autotune.errors import AutotuneError, StoreError
from autotune.store.job_queue import JobQueue
from autotune.store.job_records import Heartbeat, JobRecord, LeaseRecord, Order

LOOK_EVERY_S = 1.0
"""Time between two looks for changes by other servers, in seconds."""
TAIL_EVERY_S = 0.25
"""Time between two looks for events of watched jobs, in seconds."""
GATHER_S = 0.05
"""Wait for further heartbeats before a commit, in seconds: a commit costs as much as a hundred heartbeats in it."""
MAX_BEATS = 200
"""Most heartbeats in one commit."""
Granted = tuple[LeaseRecord, JobRecord]
_log = logging.getLogger("autotune.service")


@dataclass(eq=False, slots=True)
class _Waiter:
    """A worker without work."""

    worker_id: str
    session: str
    answer: asyncio.Future[Granted | None]


@dataclass(eq=False, slots=True)
class Watch:
    """The latest known state of a watched job."""

    num_events: int = 0
    status: str = ""
    progress: str | None = None
    num_watchers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Hub:
    """Hands out leases, follows watched jobs, and ends the leases of lost workers.

    Args:
        queue: The open queue.
        lease_ttl_s: Time without a heartbeat after which a lease is lost, in seconds.
    """

    def __init__(self, queue: JobQueue, *, lease_ttl_s: float) -> None:
        self._queue, self._lease_ttl_s = queue, lease_ttl_s
        self._waiters: deque[_Waiter] = deque()
        self._watches: dict[int, Watch] = {}
        self._wake, self._tail_wake, self._beat_wake = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._beats: list[tuple[Heartbeat, asyncio.Future[tuple[Order, int]]]] = []
        self._is_closing = asyncio.Event()
        self._reachable_since = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def num_waiting(self) -> int:
        """Number of workers that wait for a lease."""
        return len(self._waiters)

    @property
    def num_watchers(self) -> int:
        """Number of open event streams."""
        return sum(watch.num_watchers for watch in self._watches.values())

    @property
    def is_closing(self) -> bool:
        """Whether the server is about to end; long requests then end early."""
        return self._is_closing.is_set()

    def close(self) -> None:
        """Ends all long requests."""
        self._is_closing.set()
        for waiter in self._waiters:
            if not waiter.answer.done():
                waiter.answer.set_result(None)
        for watch in self._watches.values():
            watch.changed.set()

    def note_change(self) -> None:
        """Tells the hub of a change of the queue; any thread may call."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake.set)
                self._loop.call_soon_threadsafe(self._tail_wake.set)

    def note_events(self) -> None:
        """Tells the hub of new events; any thread may call."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tail_wake.set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The hub's tasks run inside the block."""
        self._loop = asyncio.get_running_loop()
        steps = (self._offer_leases, self._hear, self._follow, self._expire)
        tasks = [asyncio.create_task(self._forever(step)) for step in steps]
        try:
            yield
        finally:
            self.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _forever(self, step: Callable[[], object]) -> None:
        while True:
            try:
                await step()  # type: ignore[misc]
            except StoreError:
                # The time without a database says nothing about the workers.
                self._reachable_since = time.monotonic()
                await asyncio.sleep(LOOK_EVERY_S)
            except Exception:
                _log.exception("A task of the server failed, and goes on.")
                await asyncio.sleep(LOOK_EVERY_S)

    # Leases

    async def lease(self, worker_id: str, session: str, *, wait_s: float) -> Granted | None:
        """The worker's lease with the job, as soon as there is work; None after the wait.

        Raises:
            AutotuneError: The worker is unknown, or was started again.
        """
        granted = await run_sync(self._grant, worker_id, session)
        if granted is not None or self.is_closing or wait_s <= 0:
            return granted
        waiter = _Waiter(worker_id, session, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        # A change between the attempt and the entry into the list would be missed.
        self._wake.set()
        try:
            return await asyncio.wait_for(waiter.answer, wait_s)
        except TimeoutError:
            return None
        finally:
            with suppress(ValueError):
                self._waiters.remove(waiter)

    def _grant(self, worker_id: str, session: str) -> Granted | None:
        now = datetime.now(UTC)
        granted = self._queue.grant(worker_id, session, now=now, alive_s=self.alive_s)
        if granted is not None:
            self.note_events()
        return granted

    @property
    def alive_s(self) -> float:
        """Longest time since the last sign of life of a living worker, in seconds; a waiting worker asks rarely."""
        return 2 * self._lease_ttl_s + 30.0

    async def _offer_leases(self) -> None:
        """Offers open jobs to waiting workers, the longest wait first."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), LOOK_EVERY_S)
        self._wake.clear()
        wanted, num_granted = await self._wanted_workers(), 0
        for waiter in tuple(self._waiters):
            if waiter.answer.done() or waiter.worker_id not in wanted:
                continue
            try:
                granted = await run_sync(self._grant, waiter.worker_id, waiter.session)
            except AutotuneError as error:
                if not waiter.answer.done():
                    waiter.answer.set_exception(error)
                continue
            if granted is not None:
                num_granted += 1
                # A worker that has left gets the same lease at its next request.
                if not waiter.answer.done():
                    waiter.answer.set_result(granted)
            elif num_granted:  # the last open job may have gone to another worker
                wanted, num_granted = await self._wanted_workers(), 0

    async def _wanted_workers(self) -> set[str]:
        """The waiting workers that may get a lease."""
        names = {waiter.worker_id for waiter in self._waiters if not waiter.answer.done()}
        return await run_sync(self._queue.wanted_workers, names) if names else set()

    # Signs of life

    async def heartbeat(self, beat: Heartbeat) -> tuple[Order, int]:
        """The order for the worker, and the number of received events; waiting heartbeats share one commit.

        Raises:
            StudyNotFoundError: There is no such lease.
            LeaseLostError: The lease has ended or belongs to another worker.
            StoreError: The database failed.
        """
        answer: asyncio.Future[tuple[Order, int]] = asyncio.get_running_loop().create_future()
        self._beats.append((beat, answer))
        self._beat_wake.set()
        return await answer

    async def _hear(self) -> None:
        """Stores all waiting heartbeats."""
        await self._beat_wake.wait()
        await asyncio.sleep(GATHER_S)
        self._beat_wake.clear()
        heard, self._beats = self._beats[:MAX_BEATS], self._beats[MAX_BEATS:]
        if self._beats:
            self._beat_wake.set()
        heard = [(beat, answer) for beat, answer in heard if not answer.done()]
        found: Sequence[tuple[Order, int] | Exception]
        try:
            beats = [beat for beat, _ in heard]
            found = await run_sync(lambda: self._queue.heartbeats(beats, now=datetime.now(UTC)))
        except Exception as error:
            found = [error] * len(heard)
            if isinstance(error, StoreError):
                self._reachable_since = time.monotonic()
        for (beat, future), answer in zip(heard, found, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
                if beat.new_events or beat.progress is not None:
                    self._tail_wake.set()

    # Watchers

    @asynccontextmanager
    async def watching(self, number: int) -> AsyncIterator[Watch]:
        """The state of a job, kept up to date inside the block."""
        watch = self._watches.setdefault(number, Watch())
        watch.num_watchers += 1
        try:
            if not watch.status:
                self._update(await run_sync(self._queue.heads, (number,)))
            yield watch
        finally:
            watch.num_watchers -= 1
            if not watch.num_watchers and self._watches.get(number) is watch:
                del self._watches[number]

    async def _follow(self) -> None:
        """Reads the state of all watched jobs, and wakes the watchers of changed jobs."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._tail_wake.wait(), LOOK_EVERY_S)
        self._tail_wake.clear()
        if self._watches:
            self._update(await run_sync(self._queue.heads, tuple(self._watches)))
        await asyncio.sleep(TAIL_EVERY_S)

    def _update(self, heads: Mapping[int, tuple[int, str, str | None]]) -> None:
        for number, head in heads.items():
            watch = self._watches.get(number)
            if watch is not None and head != (watch.num_events, watch.status, watch.progress):
                watch.num_events, watch.status, watch.progress = head
                watch.changed.set()
                watch.changed = asyncio.Event()

    # Lost workers

    async def _expire(self) -> None:
        """Ends silent leases, but only after this server has been able to hear the workers for long enough."""
        await asyncio.sleep(min(LOOK_EVERY_S, self._lease_ttl_s / 4))
        if time.monotonic() - self._reachable_since < self._lease_ttl_s:
            return
        now = datetime.now(UTC)
        seen_before = now - timedelta(seconds=self._lease_ttl_s)
        if await run_sync(lambda: self._queue.expire(seen_before=seen_before, now=now)):
            self.note_change()
