"""Several processes that train or evaluate together (torchrun): ranks and collectives.

A batch is sharded row by row: rank ``r`` of ``n`` has the rows ``r, r + n, ...``. Every
function here is the identity in a single process. All ranks must call the same functions
in the same order.
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

from advnorm.heartbeat import Heartbeat, open_sockets, peer_timeout
from advnorm.rendezvous import agree_on_prefix
from advnorm.text import cut

# distributed.nn.functional is imported here, outside of any group. torch would import it
# late, and its functions would keep the group of that moment as a default argument:
# the group's threads then outlive it, and sometimes abort the exit.

TIMEOUT = timedelta(minutes=20)
"""How long a rank waits in a collective for one that is alive and does not come.

A rank that has died is noticed at once; a host or link that is down, by advnorm.heartbeat.
"""
JOIN_TIMEOUT = timedelta(minutes=5)
"""How long the ranks wait for each other at the beginning."""
FILE_TIMEOUT = 10.0
"""Seconds within which all ranks must see a file that one rank wrote."""
BUCKET_BYTES = 1 << 25
"""Bytes of one message."""

T = TypeVar("T")
_LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_single = 0
_heartbeat: Heartbeat | None = None


class OtherRankError(ValueError):
    """Another rank failed and reports the reason; this one stops with it."""


class PeerLostError(ConnectionError):
    """Another rank has died or cannot be reached; this one cannot continue."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.resume = ""
        """The command that resumes the run, where there is one."""


def size() -> int:
    """Return the number of ranks."""
    grouped = dist.is_available() and dist.is_initialized() and not _single
    return dist.get_world_size() if grouped else 1


@contextmanager
def single_process() -> Iterator[None]:
    """Ignore any process group within the block.

    The caller's ranks may have different samples, or only one of them may call.
    """
    global _single
    _single += 1
    try:
        yield
    finally:
        _single -= 1


def rank() -> int:
    """Return the rank of this process, from 0."""
    return dist.get_rank() if size() > 1 else 0


def is_first() -> bool:
    """Return whether this is rank 0, the process that writes."""
    return rank() == 0


def restart_count() -> int:
    """Return how often torchrun has restarted the ranks."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def launch_id() -> str:
    """Return an id of the torchrun that started this process, kept over restarts."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    if not name:
        return ""
    own = name if name != "none" else f"{gethostname()} {os.getppid()}"
    return sha256(own.encode()).hexdigest()[:16]


def launcher_command() -> list[str]:
    """Return the words that start a command with as many ranks; none in a single process.

    How the hosts were told to find each other is not known here: dots stand for it.
    """
    world, local = (
        os.environ.get(name, "1") for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
    )
    if not launch_id() or world == "1":
        return []
    hosts = os.environ.get("GROUP_WORLD_SIZE", "1")
    nodes = ["--nnodes", hosts] if hosts != "1" else []
    dots = ["..."] if nodes else []
    return ["torchrun", *nodes, "--nproc-per-node", local, *dots, "-m"]


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the other ranks for the time of a block, if a launcher started several.

    CPU tensors travel by gloo, CUDA tensors by NCCL. A process group that exists already
    is used as it is.
    """
    global _heartbeat
    if dist.is_initialized() or not all(name in os.environ for name in _LAUNCH_VARIABLES):
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    peer_timeout()  # a wrong value is a user's mistake, not a lost rank
    with communication():
        _heartbeat = _join(device)
    try:
        yield
    finally:
        dist.destroy_process_group()
        _heartbeat.close()
        _heartbeat = None


def _join(device: torch.device) -> Heartbeat:
    """Create the process group and its heartbeat."""
    store, me, world = next(rendezvous("env://", timeout=JOIN_TIMEOUT))
    own = PrefixStore(agree_on_prefix(store, me, world, timeout=JOIN_TIMEOUT), store)
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
        return Heartbeat.start(own, me, world, guarded=wires, timeout=JOIN_TIMEOUT)
    except BaseException:
        dist.destroy_process_group()
        raise


@contextmanager
def communication() -> Iterator[None]:
    """Turn the errors of collective calls into one that names the lost ranks.

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
    """Return which rank is lost, as far as this one knows."""
    me = f"rank {os.environ.get('RANK', '?')} on {gethostname()}"
    gone = _heartbeat.lost_ranks() if _heartbeat else {}
    if gone:
        which = "; ".join(f"rank {rank}: {how}" for rank, how in sorted(gone.items()))
        return f"{me} has lost {which}"
    detail = (str(error).strip() or type(error).__name__).splitlines()[0]
    detail = re.sub(r"^\[\S+\] ", "", detail).partition(". ")[0]  # gloo names its source
    return f"{me} has lost the other ranks: {cut(detail)}"


def local_device(name: str) -> str:
    """Return this rank's device: ``cuda`` is ``cuda:LOCAL_RANK`` under a launcher."""
    local = os.environ.get("LOCAL_RANK")
    return f"cuda:{local}" if name == "cuda" and local else name


def shard(rows: int) -> slice:
    """Return which of ``rows`` rows are this rank's.

    >>> shard(5)
    slice(0, 5, 1)
    """
    return slice(rank(), rows, size())


def shard_batches(order: Tensor, batch_size: int) -> tuple[Tensor, int]:
    """Return this rank's rows of every batch of ``order``, and its rows per batch.

    >>> shard_batches(torch.arange(6), 3)
    (tensor([0, 1, 2, 3, 4, 5]), 3)
    """
    rows = min(batch_size, len(order))
    shards = [batch[shard(len(batch))] for batch in torch.split(order, batch_size)]
    return torch.cat(shards), max(1, len(range(rows)[shard(rows)]))


def all_reduce(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its sum over the ranks, many in one message.

    The gradient of a mean over the whole batch is the sum over its shards: weight the loss
    by this rank's share of the rows *before* it is differentiated.
    """
    if size() > 1:
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            with communication():
                dist.all_reduce(flat)
            _unpack(flat, bucket)


def broadcast(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by rank 0's."""
    if size() > 1:
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            with communication():
                dist.broadcast(flat, 0)
            _unpack(flat, bucket)


def all_reduce_max(number: int) -> int:
    """Return the largest of the ranks' numbers."""
    if size() == 1:
        return number
    value = torch.tensor(number)
    with communication():
        dist.all_reduce(value, dist.ReduceOp.MAX)
    return int(value)


def all_gather(local: Tensor, rows: int) -> Tensor:
    """Put the ranks' shards back into one tensor of ``rows`` rows (see :func:`shard`)."""
    if size() == 1:
        return local
    if local.dtype == torch.bool:  # the backends do not take it
        return all_gather(local.byte(), rows).bool()
    padded = local.new_zeros((-(-rows // size()), *local.shape[1:]))
    padded[: len(local)] = local
    shards = [torch.empty_like(padded) for _ in range(size())]
    with communication():
        dist.all_gather(shards, padded)
    return torch.stack(shards, 1).flatten(0, 1)[:rows]


def broadcast_text(text: str) -> str:
    """Return rank 0's text on every rank."""
    if size() == 1:
        return text
    content = text.encode()
    length = torch.tensor(len(content))
    with communication():
        dist.broadcast(length, 0)
    buffer = torch.zeros(int(length), dtype=torch.uint8)
    if is_first():
        buffer.copy_(torch.tensor(list(content), dtype=torch.uint8))
    with communication():
        dist.broadcast(buffer, 0)
    return bytes(buffer.tolist()).decode()


def run_on_first(action: Callable[[], T]) -> T | None:
    """Call ``action`` on rank 0 only; if it fails, every rank raises."""
    result, failure = None, None
    if is_first():
        try:
            result = action()
        except Exception as error:
            failure = error
    reason = broadcast_text(str(failure) or "failed" if failure else "")
    if failure:
        raise failure
    if reason:
        raise OtherRankError(reason)
    return result


def require_single_process(reason: str) -> None:
    """Refuse to run with several ranks; rank 0 reports it."""
    if size() > 1:
        kind = ValueError if is_first() else OtherRankError
        raise kind(f"{reason}: run it in one process, without torchrun")


def require_equal(text: str, problem: str) -> None:
    """Raise ``problem`` on every rank if their texts differ."""
    if all_reduce_max(int(broadcast_text(text) != text)):
        raise ValueError(problem)


def require_shared_file(folder: Path, name: str) -> None:
    """Refuse a folder in which only some ranks see a file.

    A network file system may show a new file late, so wait for it first.
    """
    end = monotonic() + FILE_TIMEOUT
    anywhere = all_reduce_max(int((folder / name).is_file()))
    while anywhere and not (folder / name).is_file() and monotonic() < end:
        if folder.parent.is_dir():
            list(folder.parent.iterdir())  # makes a network file system refresh
        sleep(0.2)
    require_same_files(str((folder / name).is_file()), folder)


def require_same_files(contents: str, folder: Path) -> None:
    """Refuse a folder in which the ranks see different files, as ``contents`` tells."""
    require_equal(
        contents,
        f"the ranks see different files in {folder}: choose a folder that all share",
    )


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Group tensors of one dtype and device, at most :data:`BUCKET_BYTES` bytes each."""
    kinds = groupby(tensors, lambda tensor: (tensor.dtype, tensor.device))
    for _, group in kinds:
        bucket: list[Tensor] = []
        for tensor in group:
            bucket.append(tensor)
            if sum(t.numel() * t.element_size() for t in bucket) >= BUCKET_BYTES:
                yield bucket
                bucket = []
        if bucket:
            yield bucket


def _unpack(flat: Tensor, bucket: Sequence[Tensor]) -> None:
    pieces = torch.split(flat, [tensor.numel() for tensor in bucket])
    with torch.no_grad():
        for tensor, piece in zip(bucket, pieces, strict=True):
            tensor.copy_(piece.view(tensor.shape))
