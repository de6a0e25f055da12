"""Evaluations that end at chosen moments; run as a process of its own.

Importing torch costs more than a life, so one process imports everything, evaluates a run
undisturbed, and then forks a life at a time that evaluates the other:
``python killed.py MOMENTS UNDISTURBED KILLED OPTIONS...`` with the moments as JSON.
"""

import json
import os
import runpy
import signal
import sys
from contextlib import suppress
from pathlib import Path


class KilledAt:
    """Kills its process some Python events after a function was first called.

    Calls of functions written in C are events too: so a file's write, flush, fsync and
    rename, and each operation of an attack, have a moment before and one after.
    """

    def __init__(self, function: str, events: int) -> None:
        self.function, self.left, self.begun = function, events, False

    def __call__(self, frame, event, argument) -> None:
        self.begun = self.begun or (
            event == "call" and frame.f_code.co_name == self.function
        )
        self.left -= self.begun
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def evaluate(*arguments: str) -> None:
    """Do what ``python -m advnorm evaluate`` does."""
    sys.argv = ["advnorm", "evaluate", *arguments]
    with suppress(SystemExit):
        runpy.run_module("advnorm", run_name="__main__")


def live(moment: tuple[str, int], *arguments: str) -> int:
    """Evaluate in a process that is killed at the moment; return how it ended."""
    pid = os.fork()
    if not pid:
        sys.setprofile(KilledAt(*moment))
        try:
            evaluate(*arguments)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    moments, undisturbed, killed, *options = sys.argv[1:]
    evaluate(undisturbed, *options)
    ends, cut_short = [], []
    for moment in json.loads(moments):
        ends.append(live(moment, killed, *options))
        cut_short.append(len(list(Path(killed).glob("*/.*.tmp"))))
    sys.stdout.write(f"\n{json.dumps([ends, cut_short])}\n")
