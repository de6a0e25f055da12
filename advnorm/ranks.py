"""Several processes that train or judge together (torchrun): who am I, and sums over all.

One batch is dealt out row by row: rank ``r`` of ``n`` has the rows ``r, r + n, ...``. Every
function here is the identity in a single process. All ranks must call the same ones in the
same order.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from socket import gethostname
from time import monotonic, sleep
from typing import TypeVar

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from advnorm.heartbeat import Watch, open_sockets, silence
from advnorm.rendezvous import meet
from advnorm.text import cut

# distributed.nn.functional is imported here, outside of any group: torch imports it late by
# itself, its functions take the group of that moment as a default argument and hold it for
# ever. The group's threads then outlive it, and sometimes one aborts the exit.

TIMEOUT = timedelta(minutes=20)
"""How long a rank waits for another that is there and does not come.

One that has died is noticed at once; one whose host or link is down, by advnorm.heartbeat.
"""
MEETING = timedelta(minutes=5)
"""How long the ranks wait for each other at the beginning."""
LATE = 10.0
"""Seconds until a file that one rank wrote must be seen by all."""
BUCKET = 1 << 25
"""Bytes that travel together."""

T = TypeVar("T")
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_apart = 0
_watch: Watch | None = None


class FollowedError(ValueError):
    """The first rank failed, and says so itself; the others stop with it."""


class PeerLostError(ConnectionError):
    """Another rank has died or cannot be reached; this one cannot go on without it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.resume = ""
        """The command that goes on, where there is one."""


def size() -> int:
    """Return the number of processes that work together."""
    grouped = dist.is_available() and dist.is_initialized() and not _apart
    return dist.get_world_size() if grouped else 1


@contextmanager
def apart() -> Iterator[None]:
    """Work alone for the time of a block, whatever group the caller has made.

    Its ranks may each have samples of their own, or only one of them may ask.
    """
    global _apart
    _apart += 1
    try:
        yield
    finally:
        _apart -= 1


def rank() -> int:
    """Return the number of this process among them, from 0."""
    return dist.get_rank() if size() > 1 else 0


def first() -> bool:
    """Tell whether this is the process that writes."""
    return rank() == 0


def restarts() -> int:
    """Return how often torchrun has started the ranks over."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def launch() -> str:
    """Return a name of the torchrun that started this process, the same after a restart."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    if not name:
        return ""
    own = name if name != "none" else f"{gethostname()} {os.getppid()}"
    return sha256(own.encode()).hexdigest()[:16]


def launcher() -> list[str]:
    """Return how a command is begun with as many ranks; empty in a single process.

    What torchrun was told of how the hosts find each other is not known here: dots.
    """
    world, local = (
        os.environ.get(name, "1") for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
    )
    if not launch() or world == "1":
        return []
    hosts = os.environ.get("GROUP_WORLD_SIZE", "1")
    several = ["--nnodes", hosts] if hosts != "1" else []
    dots = ["..."] if several else []
    return ["torchrun", *several, "--nproc-per-node", local, *dots, "-m"]


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Meet the other ranks for the time of a block, if a launcher started several.

    CPU tensors travel by gloo, CUDA tensors by NCCL. A group that the caller has made is
    used as it is.
    """
    global _watch
    if dist.is_initialized() or not all(name in os.environ for name in _LAUNCHED):
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    silence()  # a mistake there is the user's, and no lost rank
    with exchange():
        _watch = _join(device)
    try:
        yield
    finally:
        dist.destroy_process_group()
        _watch.close()
        _watch = None


def _join(device: torch.device) -> Watch:
    """Make the process group, and watch over it."""
    store, me, world = next(rendezvous("env://", timeout=MEETING))
    own = PrefixStore(meet(store, me, world, timeout=MEETING), store)
    before = open_sockets()
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=own,
        rank=me,
        world_size=world,
        timeout=TIMEOUT,
    )
    wires = {fd: ino for fd, ino in open_sockets().items() if before.get(fd) != ino}
    try:
        return Watch.start(own, me, world, guarded=wires, timeout=MEETING)
    except BaseException:
        dist.destroy_process_group()
        raise


@contextmanager
def exchange() -> Iterator[None]:
    """Talk to the other ranks for the time of a block; where that fails, say who is lost.

    Raises:
        PeerLostError: In place of what the process group raises.
    """
    try:
        yield
    except PeerLostError:
        raise
    except (RuntimeError, OSError) as error:
        raise PeerLostError(_lost(error)) from error


def _lost(error: Exception) -> str:
    """Say which rank is lost, as far as is known here."""
    me = f"rank {os.environ.get('RANK', '?')} on {gethostname()}"
    gone = _watch.gone() if _watch else {}
    if gone:
        which = "; ".join(f"rank {rank}: {how}" for rank, how in sorted(gone.items()))
        return f"{me} has lost {which}"
    detail = (str(error).strip() or type(error).__name__).splitlines()[0]
    detail = re.sub(r"^\[\S+\] ", "", detail).partition(". ")[0]  # gloo names its source
    return f"{me} has lost the other ranks: {cut(detail)}"


def place(name: str) -> str:
    """Return the device of this rank: each has its own where CUDA is named in general."""
    local = os.environ.get("LOCAL_RANK")
    return f"cuda:{local}" if name == "cuda" and local else name


def part(rows: int) -> slice:
    """Return which of so many rows are this rank's.

    >>> part(5)
    slice(0, 5, 1)
    """
    return slice(rank(), rows, size())


def deal(order: Tensor, batch_size: int) -> tuple[Tensor, int]:
    """Return this rank's rows of every batch of ``order``, and how many a batch has.

    >>> deal(torch.arange(6), 3)
    (tensor([0, 1, 2, 3, 4, 5]), 3)
    """
    whole = min(batch_size, len(order))
    mine = [batch[part(len(batch))] for batch in torch.split(order, batch_size)]
    return torch.cat(mine), max(1, len(range(whole)[part(whole)]))


def add_up(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its sum over the ranks, many in one message.

    The gradient of a mean over the whole batch is the sum of what its parts contribute:
    weigh the loss by this rank's share of the rows *before* it is differentiated.
    """
    if size() > 1:
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            with exchange():
                dist.all_reduce(flat)
            _unpack(flat, bucket)


def follow(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by the first rank's."""
    if size() > 1:
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            with exchange():
                dist.broadcast(flat, 0)
            _unpack(flat, bucket)


def most(number: int) -> int:
    """Return the largest of the ranks' numbers."""
    if size() == 1:
        return number
    box = torch.tensor(number)
    with exchange():
        dist.all_reduce(box, dist.ReduceOp.MAX)
    return int(box)


def collect(mine: Tensor, rows: int) -> Tensor:
    """Put the rows that :func:`part` dealt out back into one tensor of ``rows`` rows."""
    if size() == 1:
        return mine
    if mine.dtype == torch.bool:  # does not travel
        return collect(mine.byte(), rows).bool()
    room = mine.new_zeros((-(-rows // size()), *mine.shape[1:]))
    room[: len(mine)] = mine
    parts = [torch.empty_like(room) for _ in range(size())]
    with exchange():
        dist.all_gather(parts, room)
    return torch.stack(parts, 1).flatten(0, 1)[:rows]


def say(text: str) -> str:
    """Return the first rank's text on every rank."""
    if size() == 1:
        return text
    content = text.encode()
    length = torch.tensor(len(content))
    with exchange():
        dist.broadcast(length, 0)
    box = torch.zeros(int(length), dtype=torch.uint8)
    if first():
        box.copy_(torch.tensor(list(content), dtype=torch.uint8))
    with exchange():
        dist.broadcast(box, 0)
    return bytes(box.tolist()).decode()


def lead(action: Callable[[], T]) -> T | None:
    """Do something on the first rank alone; where it fails, every rank raises."""
    done, failure = None, None
    if first():
        try:
            done = action()
        except Exception as error:
            failure = error
    told = say(str(failure) or "failed" if failure else "")
    if failure:
        raise failure
    if told:
        raise FollowedError(told)
    return done


def alone(reason: str) -> None:
    """Refuse to work with others; the first rank says so for all."""
    if size() > 1:
        kind = ValueError if first() else FollowedError
        raise kind(f"{reason}: run it in one process, without torchrun")


def agree(text: str, problem: str) -> None:
    """Raise ``problem`` on every rank if their texts differ."""
    if most(int(say(text) != text)):
        raise ValueError(problem)


def share(folder: Path, name: str) -> None:
    """Refuse a folder in which some ranks see a file and others do not.

    A network file system may show a new file a little late: then it is waited for.
    """
    end = monotonic() + LATE
    somewhere = most(int((folder / name).is_file()))
    while somewhere and not (folder / name).is_file() and monotonic() < end:
        if folder.parent.is_dir():
            list(folder.parent.iterdir())  # has the file system look anew
        sleep(0.2)
    see_the_same(str((folder / name).is_file()), folder)


def see_the_same(found: str, folder: Path) -> None:
    """Refuse a folder in which the ranks have found different files."""
    agree(
        found, f"the ranks see different files in {folder}: choose a folder that all share"
    )


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Group tensors of one dtype and device, at most :data:`BUCKET` bytes each."""
    kinds = groupby(tensors, lambda tensor: (tensor.dtype, tensor.device))
    for _, group in kinds:
        bucket: list[Tensor] = []
        for tensor in group:
            bucket.append(tensor)
            if sum(t.numel() * t.element_size() for t in bucket) >= BUCKET:
                yield bucket
                bucket = []
        if bucket:
            yield bucket


def _unpack(flat: Tensor, bucket: Sequence[Tensor]) -> None:
    pieces = torch.split(flat, [tensor.numel() for tensor in bucket])
    with torch.no_grad():
        for tensor, piece in zip(bucket, pieces, strict=True):
            tensor.copy_(piece.view(tensor.shape))
