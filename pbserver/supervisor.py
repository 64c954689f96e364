"""The parent process: it forks the others, replaces those that die, and stops them. One thread, no work of its own."""

import ctypes
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from adapters.url import shown
from pbserver import __version__
from pbserver.metrics import Metrics, WorkerMetrics
from pbserver.settings import Settings, host_and_port
from pbserver.worker import READY, StartFailed, preload, run_worker

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 30.0  # a process that lived so long starts again at once
_KILL_AFTER_SECONDS = 2.0  # beyond drain_seconds
_BACKLOG = 4096

_log = structlog.get_logger("pbserver.supervisor")


class Role(NamedTuple):
    """What a child process does. `run` is called with the descriptor to write READY to, and returns on SIGTERM."""

    name: str
    run: Callable[[int], None]
    metrics: WorkerMetrics | None = None


@dataclass
class _Child:
    role: Role
    pid: int = 0
    pipe: int = -1
    report: bytes = b""
    ready: bool = False
    started: float = 0.0
    start_at: float = 0.0
    pause_seconds: float = 0.0

    @property
    def failure(self) -> str:
        """What the child said before it ended; empty if it said nothing."""
        return self.report.removeprefix(READY).decode(errors="replace").strip()


@dataclass
class Supervisor:
    """Runs every role in a process of its own until SIGTERM or SIGINT; `run` returns the exit code.

    `on_ready` is called once, when every process has reported READY; `on_stop` before they are told to stop. If any
    cannot start the first time, none stays; afterwards, one that dies is replaced, with growing pauses.
    """

    roles: Sequence[Role]
    drain_seconds: float
    on_ready: Callable[[], None]
    on_stop: Callable[[], None] = lambda: None
    _children: list[_Child] = field(default_factory=list)
    _wakeup: tuple[int, int] = (-1, -1)
    _announced: bool = False

    def run(self) -> int:
        self._children = [_Child(role) for role in self.roles]
        with self._caught_signals():
            try:
                return self._watch()
            finally:
                self._stop()

    def _watch(self) -> int:
        while True:
            for child in self._children:
                if not child.pid and child.start_at <= time.monotonic():
                    self._start(child)
            if self._wait() & set(_STOPPING):
                return 0
            dead = self._reap()
            if not self._announced and dead:
                for line in dict.fromkeys(dead):
                    sys.stderr.write(f"pbserver: {line}\n")
                return 1
            if not self._announced and all(child.ready for child in self._children):
                self._announced = True
                self.on_ready()

    def _wait(self) -> set[int]:
        """Sleeps until something happens; gathers the children's reports and returns the signals that came."""
        pipes = {child.pipe: child for child in self._children if child.pipe >= 0}
        poller = select.poll()
        for fd in (self._wakeup[0], *pipes):
            poller.register(fd, select.POLLIN)
        next_start = min((child.start_at for child in self._children if not child.pid), default=math.inf)
        pause = None if next_start == math.inf else max(0.0, next_start - time.monotonic()) * 1000 + 1
        signals: set[int] = set()
        for fd, _ in poller.poll(pause):
            if fd in pipes:
                _read_report(pipes[fd])
            else:
                signals = set(os.read(fd, 512))
        return signals

    def _start(self, child: _Child) -> None:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reading, False)
        child.report, child.ready, child.started = b"", False, time.monotonic()
        parent = os.getpid()
        sys.stdout.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # so that none meets the child with our handlers
        child.pid = os.fork()
        if child.pid == 0:
            self._become(child.role, writing, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(writing)
        child.pipe = reading
        if child.role.metrics is not None:
            child.role.metrics.has_started(child.pid)

    def _become(self, role: Role, ready_fd: int, parent: int) -> None:
        """The child's whole life; it never returns."""
        code = 1
        try:
            _die_with(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent says when to stop
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd in (*self._wakeup, *(child.pipe for child in self._children if child.pipe >= 0)):
                os.close(fd)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            role.run(ready_fd)
            code = 0
        except StartFailed as failure:
            os.write(ready_fd, str(failure).replace("\n", " ").encode())
        except Exception as bug:  # noqa: BLE001 - the parent is told, whatever it is
            _log.exception("a process failed", process=role.name)
            os.write(ready_fd, f"{role.name} failed: {type(bug).__name__}: {bug}".replace("\n", " ").encode())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> list[str]:
        """Notes the children that ended, says of each why, and sets the time of its next start."""
        reasons = []
        for child in self._children:
            ended, status = os.waitpid(child.pid, os.WNOHANG) if child.pid else (0, 0)
            if not ended:
                continue
            _read_report(child)
            reasons.append(child.failure or f"{child.role.name} {_how_it_ended(status)}")
            lived = time.monotonic() - child.started
            self._forget(child)
            steady = child.ready and (lived >= _STEADY_SECONDS or not child.pause_seconds)
            longer = min(max(child.pause_seconds * 2, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
            child.start_at = time.monotonic() + (0.0 if steady else longer)
            child.pause_seconds = _FIRST_PAUSE_SECONDS if steady else longer
            if self._announced:
                _log.error("a process ended; it is started again", process=child.role.name, reason=reasons[-1])
                if child.role.metrics is not None:
                    child.role.metrics.has_restarted()
        return reasons

    def _forget(self, child: _Child) -> None:
        os.close(child.pipe)
        child.pid, child.pipe = 0, -1
        if child.role.metrics is not None:
            child.role.metrics.has_ended()

    def _stop(self) -> None:
        """TERM to all, KILL to those that are not gone after drain_seconds or at a second signal to stop."""
        self.on_stop()
        self._send(signal.SIGTERM)
        deadline = time.monotonic() + self.drain_seconds + _KILL_AFTER_SECONDS
        killed = False
        while any(child.pid for child in self._children):
            poller = select.poll()
            poller.register(self._wakeup[0], select.POLLIN)
            left = max(0.0, deadline - time.monotonic())
            woken = poller.poll(None if killed else left * 1000 + 1)
            again = set(os.read(self._wakeup[0], 512)) & set(_STOPPING) if woken else set()
            for child in self._children:
                if child.pid and os.waitpid(child.pid, os.WNOHANG)[0]:
                    self._forget(child)
            if not killed and (again or time.monotonic() >= deadline):
                killed = True
                self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.pid:
                with suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    @contextmanager
    def _caught_signals(self) -> Iterator[None]:
        """Signals become bytes in a pipe, so that one poll waits for everything."""
        self._wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        before = {number: signal.signal(number, lambda _signal, _frame: None) for number in _SIGNALS}
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            for fd in self._wakeup:
                os.close(fd)


def serve(settings: Settings) -> int:
    """Serves until SIGTERM or SIGINT; the exit code. Raises StartFailed before anything was started."""
    workers = _worker_count(settings)
    listeners = listen(settings.listen, workers)
    admin = listen(settings.admin, 1) if settings.admin is not None else []
    preload()
    from pbserver import dispatch

    metrics = Metrics(dispatch.CALLS, dispatch.OUTCOMES, workers=workers, threads=settings.threads)
    sockets = [*listeners, *admin]
    roles = [_worker_role(settings, index, sockets, metrics.workers[index]) for index in range(workers)]
    roles += [_admin_role(listener, sockets, metrics) for listener in admin]

    def announce() -> None:
        scheme = "https" if settings.tls_cert is not None else "http"
        counts = f"{workers} worker{'s' if workers > 1 else ''} x {settings.threads} threads"
        more = f"; admin http://{_address(admin[0])}" if admin else ""
        place = f"{scheme}://{_address(listeners[0])}"
        sys.stdout.write(f"pbserver {__version__} serves {place} (store {shown(settings.store)}, {counts}){more}\n")
        host, port = host_and_port(_address(listeners[0]))
        sys.stdout.write(f"point an app at it: API_HOST={host} API_PORT={port}\n")
        sys.stdout.flush()

    def close_sockets() -> None:
        for each in sockets:
            each.close()

    return Supervisor(roles, settings.http.drain_seconds, on_ready=announce, on_stop=close_sockets).run()


def listen(address: str, count: int) -> list[socket.socket]:
    """`count` sockets that share one HOST:PORT; port 0: the first picks it. They listen, so callers queue from now on.

    The parent keeps them open: what waits in a dead worker's queue is served by the next one. Raises StartFailed.
    """
    host, port = host_and_port(address)
    sockets: list[socket.socket] = []
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:  # sharing must not hide another server on this port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
        for _ in range(count):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(place)
            place = sock.getsockname()
        for sock in sockets:
            sock.listen(_BACKLOG)
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise StartFailed(f"cannot listen on {address}: {error.strerror or error}") from error
    return sockets


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _worker_count(settings: Settings) -> int:
    from adapters.build import is_shared
    from adapters.errors import StoreError

    try:
        if settings.workers == 1 or is_shared(settings.store):
            return settings.workers
    except StoreError as error:
        raise StartFailed(f"cannot open the store {shown(settings.store)}: {error}") from error
    if "workers" in settings.model_fields_set:
        name = settings.store.partition(":")[0]
        raise StartFailed(f"{name}: lives in one process; use --workers 1")
    return 1


def _worker_role(settings: Settings, index: int, sockets: list[socket.socket], metrics: WorkerMetrics) -> Role:
    def run(ready_fd: int) -> None:
        run_worker(settings, _keep(sockets[index], sockets), metrics, ready_fd, index)

    return Role(f"worker {index}", run, metrics)


def _admin_role(listener: socket.socket, sockets: list[socket.socket], metrics: Metrics) -> Role:
    def run(ready_fd: int) -> None:
        from pbserver.frontends.admin import run_admin

        run_admin(_keep(listener, sockets), metrics, ready_fd)

    return Role("admin", run)


def _keep(own: socket.socket, sockets: list[socket.socket]) -> socket.socket:
    for each in sockets:
        if each is not own:
            each.close()
    return own


def _read_report(child: _Child) -> None:
    with suppress(BlockingIOError):
        while data := os.read(child.pipe, 4096):
            child.report += data
    child.ready = child.report.startswith(READY)


def _how_it_ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def _die_with(parent: int) -> None:
    """Has the kernel kill this process when the parent dies, however that happens (prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)
