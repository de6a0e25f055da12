"""Detect that the host of another rank, or the link to it, is down.

A process that ends closes its connections, and whoever waits for it learns it at once. A
host that loses power or its link says nothing, and TCP retries for a quarter of an hour. So
every rank keeps an idle connection to rank 0, which the kernel probes (TCP keepalive). A
process that is slow, or even stopped, passes the probe: its kernel answers. Where no answer
comes, the connections of gloo are shut down, so that a waiting rank raises.
"""

import os
import selectors
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from stat import S_ISSOCK
from threading import Thread
from typing import Self

from torch.distributed.distributed_c10d import Store

TIMEOUT_VARIABLE = "ADVNORM_PEER_TIMEOUT"
"""Environment variable: seconds without an answer after which a host counts as lost."""
DEFAULT_TIMEOUT = 45
"""Less than torchrun's own 60 s, so that the ranks end first and say why."""
PROBES = 4


def peer_timeout() -> int:
    """Return after how many seconds without an answer a host counts as lost."""
    text = os.environ.get(TIMEOUT_VARIABLE, str(DEFAULT_TIMEOUT))
    if not text.isdecimal() or int(text) < PROBES + 1:
        raise ValueError(
            f"{TIMEOUT_VARIABLE}={text}: give whole seconds, at least {PROBES + 1} "
            f"(default {DEFAULT_TIMEOUT})"
        )
    return int(text)


def open_sockets() -> dict[int, int]:
    """Return this process's sockets, with their inodes; none where there is no /proc."""
    sockets = {}
    for entry in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            status = os.fstat(int(entry.name))
            if S_ISSOCK(status.st_mode):
                sockets[int(entry.name)] = status.st_ino
    return sockets


class Heartbeat:
    """Idle connections that show who is alive: to rank 0, and on rank 0 to all others.

    When one stops answering, the ``guarded`` sockets are shut down.
    """

    def __init__(
        self, links: Mapping[int, socket.socket], guarded: Mapping[int, int]
    ) -> None:
        self._links, self._guarded = dict(links), dict(guarded)
        self._gone: dict[int, str] = {}
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    @classmethod
    def start(
        cls,
        store: Store,
        rank: int,
        world: int,
        *,
        guarded: Mapping[int, int],
        timeout: timedelta,
    ) -> Self:
        """Connect the ranks; all must call it, with a store whose keys are new."""
        wait = timeout.total_seconds()
        if rank == 0:
            return cls(_accept(store, world, wait), guarded)
        port, word = store.get("watch").decode().split()
        address = os.environ["MASTER_ADDR"], int(port)
        link = _keep_alive(socket.create_connection(address, timeout=wait))
        link.sendall(f"{word} {rank:08}".encode())
        return cls({0: link}, guarded)

    def lost_ranks(self, *, wait: float = 1.0) -> dict[int, str]:
        """Return the ranks that are lost, and why; wait a moment for late news."""
        if not self._gone:
            self._thread.join(wait)
        return dict(self._gone)

    def close(self) -> None:
        """Close the connections; the other ranks are not affected."""
        for link in self._links.values():
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for link in self._links.values():
            link.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for rank, link in self._links.items():
                selector.register(link, selectors.EVENT_READ, rank)
            while selector.get_map():
                for key, _ in selector.select():
                    link = self._links[key.data]
                    selector.unregister(link)
                    self._note(key.data, link)

    def _note(self, rank: int, link: socket.socket) -> None:
        try:
            link.recv(1)
            self._gone[rank] = "its process has ended"
        except ConnectionResetError:
            self._gone[rank] = "its process has ended"
        except OSError as error:
            self._gone[rank] = (
                f"its host or the link to it is down (no answer for {peer_timeout()} s: "
                f"{error.strerror})"
            )
            _shut(self._guarded)


def _accept(store: Store, world: int, wait: float) -> dict[int, socket.socket]:
    """Accept a connection from every other rank; drop any other."""
    word, links = os.urandom(8).hex(), dict[int, socket.socket]()
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(
        ("", 0), family=family, backlog=world, dualstack_ipv6=both
    ) as server:
        server.settimeout(wait)
        store.set("watch", f"{server.getsockname()[1]} {word}")
        while len(links) < world - 1:
            link, _ = server.accept()
            greeting = _greeting(link)
            if greeting.startswith(f"{word} "):
                links[int(greeting.split()[1])] = _keep_alive(link)
            else:
                link.close()
    return links


def _greeting(link: socket.socket) -> str:
    """Return the first message of the other side, or nothing after a few seconds."""
    link.settimeout(10.0)
    try:
        return link.recv(25, socket.MSG_WAITALL).decode(errors="replace")
    except OSError:
        return ""


def _keep_alive(link: socket.socket) -> socket.socket:
    """Turn on keepalive; the connection is lost after :func:`peer_timeout` seconds."""
    link.settimeout(None)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    pause = peer_timeout() // (PROBES + 1)
    options = {
        "TCP_KEEPIDLE": peer_timeout() - PROBES * pause,
        "TCP_KEEPINTVL": pause,
        "TCP_KEEPCNT": PROBES,
    }
    for name, value in options.items():
        if hasattr(socket, name):
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return link


def _shut(guarded: Mapping[int, int]) -> None:
    """Shut down connections whose descriptor was not reused; keep gloo's listener."""
    for number, inode in guarded.items():
        with suppress(OSError):
            if os.fstat(number).st_ino == inode:
                with socket.socket(fileno=os.dup(number)) as link:
                    link.getpeername()  # raises for a socket that only listens
                    link.shutdown(socket.SHUT_RDWR)
