"""Ctrl-C, SIGTERM and SIGHUP: finish the step, save, and say how to resume."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from advnorm import ranks

HANGUP: int | None = getattr(signal, "SIGHUP", None)
"""The signal of a terminal that is closed, where the system has it."""
SIGNALS = [signal.SIGINT, signal.SIGTERM, *([] if HANGUP is None else [HANGUP])]
"""Signals that stop this process; a worker process takes SIGTERM only."""


def stop_on_sigterm_only() -> None:
    """Let the parent process decide when to stop, by SIGTERM.

    Ctrl-C and SIGHUP reach all processes of a terminal, and a second signal would act at
    once.
    """
    SIGNALS[:] = [signal.SIGTERM]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ignore_hangup()
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def handled_signals() -> list[int]:
    """Return the signals to handle; ``nohup`` has SIGHUP ignored, and so it stays."""
    return [
        signum
        for signum in SIGNALS
        if signum != HANGUP or signal.getsignal(signum) is not signal.SIG_IGN
    ]


def ignore_hangup() -> None:
    """Ignore SIGHUP from here on.

    It seldom comes alone: a shell that ends and its terminal send one each, and a service
    manager sends it right after SIGTERM. So it never counts as a second signal.
    """
    if HANGUP is not None:
        signal.signal(HANGUP, signal.SIG_IGN)


class StoppedError(Exception):
    """Training stopped at a safe point, because of a signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum
        self.resume = ""
        """The command that resumes, where there is one."""

    def __reduce__(self) -> tuple[type["StoppedError"], tuple[int]]:
        """Let another process read it."""
        return StoppedError, (self.signum,)


class Stop:
    """Hold the first signal until the next safe point; a second one acts at once.

    A second one that is SIGHUP is ignored.

    >>> with Stop() as stop:
    ...     stop.check()
    """

    def __init__(self) -> None:
        self._signum: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum in handled_signals():
                self._before[signum] = signal.signal(signum, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def check(self) -> None:
        """Raise :class:`StoppedError` if a signal came: call it where stopping is safe.

        A signal to one rank stops all of them, at the same point.
        """
        signum = ranks.all_reduce_max(self._signum or 0)
        if signum:
            raise StoppedError(signum)

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        self._signum = signum
        hangup = {k: v for k, v in self._before.items() if k == HANGUP}
        self._restore()
        if hangup:  # restored at the end of the block
            ignore_hangup()
        self._before = hangup

    def _restore(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before = {}
