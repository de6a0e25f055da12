"""Many tasks on several processes of one machine, or on a Ray cluster.

A task that fails does not stop the others. What needs the same run is one task: two
processes must not train a run at once.
"""

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Lock, Thread, current_thread, main_thread
from types import FrameType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from advnorm.training import StoppedError
from advnorm.training.stop import handled_signals, ignore_hangup, stop_on_sigterm_only

T = TypeVar("T")
R = TypeVar("R")
Workers = int | Literal["ray"]
"""The number of processes of this machine, or a Ray cluster."""
DIED = "its process died: out of memory, or killed"


@dataclass(frozen=True)
class Workspace:
    """Where runs are made, and with what."""

    out: Path
    """Run folders go to ``runs`` below it, records beside them."""
    data: Path | None = None
    device: str = "auto"
    on: Workers = 1


def parse_workers(text: str) -> Workers:
    """Return the number of processes, or ``ray``."""
    if text == "ray":
        imported_ray()  # if it is missing, say so before anything runs
        return "ray"
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--on takes a number of processes or ray, not {text!r}")
    return int(text)


def group_by_runs(
    items: Sequence[T], runs_of: Callable[[T], Collection[str]]
) -> list[list[T]]:
    """Put items together that share a run, directly or through others.

    >>> group_by_runs(["ab", "c", "d", "bc"], set)
    [['ab', 'c', 'bc'], ['d']]
    """
    groups: list[tuple[set[str], list[T]]] = []
    for item in items:
        runs, members = set(runs_of(item)), [item]
        shared = [group for group in groups if group[0] & runs]
        if not shared:
            groups.append((runs, members))
            continue
        first, *others = shared
        for group in others:
            groups.remove(group)
        for other_runs, other_members in [*others, (runs, members)]:
            first[0].update(other_runs)
            first[1].extend(other_members)
    return [members for _, members in groups]


class TaskOutcome(NamedTuple, Generic[R]):
    """The result of a task, or the sentence that says why there is none."""

    number: int
    result: R | None
    failure: str


def run_tasks(
    work: Callable[[T], R],
    tasks: Sequence[T],
    *,
    on: Workers = 1,
) -> Iterator[TaskOutcome[R]]:
    """Yield the outcome of each task as it is known; ``work`` is a module's function."""
    if on == "ray":
        yield from _on_ray(work, tasks)
    elif on == 1:
        for number, task in enumerate(tasks):
            yield attempt(work, number, task)
    else:
        yield from _on_processes(work, tasks, on)


def attempt(work: Callable[[T], R], number: int, task: T) -> TaskOutcome[R]:
    """Return what work gives, or why it gives nothing."""
    try:
        return TaskOutcome(number, work(task), "")
    except StoppedError:
        raise
    except Exception as error:
        return TaskOutcome(number, None, f"{type(error).__name__}: {error}")


def _on_processes(
    work: Callable[[T], R], tasks: Sequence[T], workers: int
) -> Iterator[TaskOutcome[R]]:
    """Share tasks; where a process dies, what it may have taken along is done singly."""
    left = dict(enumerate(tasks))
    try:
        for outcome in _pool(work, left, workers):
            del left[outcome.number]
            yield outcome
    except BrokenProcessPool:
        for number, task in left.items():
            try:
                yield from _pool(work, {number: task}, 1)
            except BrokenProcessPool:
                yield TaskOutcome(number, None, DIED)


def _pool(
    work: Callable[[T], R], tasks: Mapping[int, T], workers: int
) -> Iterator[TaskOutcome[R]]:
    """Share tasks; whoever stops waiting for them stops the processes, at a safe point."""
    threads, others = max(1, (os.cpu_count() or 1) // workers), active_children()
    with (
        _terminable(),
        ProcessPoolExecutor(
            workers,
            mp_context=get_context("spawn"),
            initializer=_begin,
            initargs=(threads,),
        ) as pool,
    ):
        waiting = [pool.submit(_in_process, work, n, task) for n, task in tasks.items()]
        try:
            for future in as_completed(waiting):
                yield future.result()
        except BaseException:
            for process in active_children():
                if process not in others:
                    process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """While entered, a signal is an exception, so that it leaves no process behind."""

    def stop(signum: int, frame: FrameType | None) -> None:
        ignore_hangup()
        raise StoppedError(signum)

    if current_thread() is not main_thread():
        yield
        return
    before = {signum: signal.signal(signum, stop) for signum in handled_signals()}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


_stops: list[BaseException] = []
"""Of this process: what stopped its task. The pool would hand it the next one."""


def _begin(threads: int) -> None:
    """Prepare a process; the one that waits for it says when to stop."""
    import torch

    torch.set_num_threads(threads)
    stop_on_sigterm_only()
    Thread(target=_end_with_parent, daemon=True).start()


_busy = Lock()
"""Of this process: held while it is at a task."""


def _end_with_parent() -> None:
    """End this process if the one that waits for it is killed: a task, at a safe point."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    if _busy.locked():
        os.kill(os.getpid(), signal.SIGTERM)
    _busy.acquire()
    os._exit(1)


def _in_process(work: Callable[[T], R], number: int, task: T) -> TaskOutcome[R]:
    if _stops:
        raise _stops[0]
    try:
        with _busy:
            return attempt(work, number, task)
    except (StoppedError, KeyboardInterrupt) as stopped:
        _stops.append(stopped)
        raise


def imported_ray() -> Any:
    """Return Ray, or say how to have it."""
    try:
        import ray
    except ImportError:
        raise ValueError("--on ray needs Ray: pip install 'advnorm[ray]'") from None
    return ray


def _on_ray(work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[TaskOutcome[R]]:
    ray = imported_ray()
    if not ray.is_initialized():
        ray.init(ignore_reinit_error=True, log_to_driver=False)
    remote = ray.remote(max_retries=2)(attempt)  # another host does what a lost one had
    waiting = {remote.remote(work, n, task): n for n, task in enumerate(tasks)}
    while waiting:
        (done,), _ = ray.wait(list(waiting))
        number = waiting.pop(done)
        try:
            yield ray.get(done)
        except ray.exceptions.RayTaskError:  # raised by the task: it was stopped
            raise
        except ray.exceptions.RayError:
            yield TaskOutcome(number, None, DIED)
