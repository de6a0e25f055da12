"""The heartbeat between ranks: who is lost, and what is shut (lost links: tests/hosts)."""

import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from advnorm import heartbeat
from advnorm.heartbeat import Heartbeat, open_sockets, peer_timeout

SOON = timedelta(seconds=20)


def news(monitor) -> dict[int, str]:
    """Return who is gone, as soon as anyone is."""
    return next(filter(None, (monitor.lost_ranks() for _ in range(20))), {})


@pytest.fixture
def heartbeats(monkeypatch):
    """Return the heartbeats of three ranks."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    store = HashStore()

    def start(rank):
        return Heartbeat.start(store, rank, 3, guarded={}, timeout=SOON)

    with ThreadPoolExecutor(3) as threads:
        each = list(threads.map(start, range(3)))
    yield each
    for monitor in each:
        monitor.close()


def test_a_rank_that_ends_is_named_by_the_first(heartbeats):
    first, second, third = heartbeats
    assert first.lost_ranks(wait=0) == second.lost_ranks(wait=0) == {}
    second.close()
    assert news(first) == {1: "its process has ended"}
    assert third.lost_ranks(wait=0) == {}


def test_the_kernel_probes_the_connections_for_as_long_as_asked(heartbeats, monkeypatch):
    (link,) = heartbeats[1]._links.values()
    probes = [
        link.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    ]
    assert probes[0] + probes[1] * probes[2] == heartbeat.DEFAULT_TIMEOUT
    assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_stranger_who_connects_is_sent_away(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    store = HashStore()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(Heartbeat.start, store, 0, 2, guarded={}, timeout=SOON)
        port = int(store.get("watch").split()[0])
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: you\r\n\r\n")
            second = Heartbeat.start(store, 1, 2, guarded={}, timeout=SOON)
        monitor = first.result()
    assert monitor.lost_ranks(wait=0) == {}
    second.close()
    monitor.close()


def test_a_link_that_is_lost_without_a_word_shuts_the_guarded_connections():
    """A socket whose keepalive fails raises when it is read; so does this one."""

    class Lost:
        def recv(self, count):
            raise OSError(110, "Connection timed out")

    ours, theirs = socket.socketpair()
    before = open_sockets()
    assert before[ours.fileno()] == os.fstat(ours.fileno()).st_ino
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as listener:
        other, reused = socket.socketpair()
        guarded = {ours.fileno(): before[ours.fileno()], reused.fileno(): 1}
        guarded |= {listener.fileno(): open_sockets()[listener.fileno()]}
        monitor = Heartbeat({}, guarded)
        monitor._note(1, Lost())
        assert monitor.lost_ranks() == {
            1: "its host or the link to it is down (no answer for 45 s: Connection timed out)"
        }
        assert theirs.recv(1) == b""  # shut
        reused.sendall(b"x")  # a file that came later has the number of one that is gone
        assert other.recv(1) == b"x"
        with socket.create_connection(listener.getsockname()):
            listener.accept()[0].close()  # gloo would abort without its listener
        other.close()
        reused.close()


def test_a_process_that_is_killed_shuts_nothing():
    """Gloo itself raises then, after it has read what was sent before."""
    ours, theirs = socket.socketpair()
    server = socket.create_server(("127.0.0.1", 0))
    link = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    monitor = Heartbeat({1: link}, {ours.fileno(): os.fstat(ours.fileno()).st_ino})
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    accepted.close()  # resets the connection
    assert news(monitor) == {1: "its process has ended"}
    ours.sendall(b"x")
    assert theirs.recv(1) == b"x"
    monitor.close()
    for connection in (ours, theirs, server):
        connection.close()


@pytest.mark.parametrize("text", ["4", "-1", "soon", "60.5", ""])
def test_a_silence_that_makes_no_sense_is_refused(monkeypatch, text):
    monkeypatch.setenv(heartbeat.TIMEOUT_VARIABLE, text)
    with pytest.raises(ValueError, match=r"ADVNORM_PEER_TIMEOUT=.*whole seconds"):
        peer_timeout()
