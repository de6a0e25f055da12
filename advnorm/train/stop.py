"""Ctrl-C and SIGTERM: finish the step, save, and say how to go on."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from advnorm import ranks

SIGNALS = [signal.SIGINT, signal.SIGTERM]
"""What stops this process. One that another process stops takes SIGTERM alone."""


def obey() -> None:
    """Have another process say when to stop, by SIGTERM.

    Ctrl-C reaches all processes of a terminal, and a second signal would act at once.
    """
    SIGNALS[:] = [signal.SIGTERM]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


class StoppedError(Exception):
    """A signal asked the job to stop, and it did so at a safe point."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum
        self.resume = ""
        """The command that goes on, where there is one."""

    def __reduce__(self) -> tuple[type["StoppedError"], tuple[int]]:
        """Let another process read it."""
        return StoppedError, (self.signum,)


class Stop:
    """While entered, a first signal is kept for the next safe point; a second acts at once.

    >>> with Stop() as stop:
    ...     stop.check()
    """

    def __init__(self) -> None:
        self._signum: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum in SIGNALS:
                self._before[signum] = signal.signal(signum, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._give_back()

    def check(self) -> None:
        """Raise :class:`StoppedError` if a signal came: call it where stopping is safe.

        A signal to one rank stops all of them, at the same point.
        """
        signum = ranks.most(self._signum or 0)
        if signum:
            raise StoppedError(signum)

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        self._signum = signum
        self._give_back()

    def _give_back(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before = {}
