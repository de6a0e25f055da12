"""Downloads from a local server: resumed, checked, once."""

import hashlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from advnorm.data import DATA, load
from advnorm.data.download import download
from advnorm.data.sources import NOT_DOWNLOADABLE, SOURCES, Source

CONTENT = bytes(range(256)) * 12_000  # 3 MB: a few chunks
SHA = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves ``content``; ``cut`` bytes at most an answer; counts what it does."""

    daemon_threads = True

    def __init__(self, content: bytes = CONTENT) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = content
        self.kind = "application/octet-stream"
        self.cut: int | None = None
        self.ranges = True
        self.status: int | None = None
        self.delay = threading.Event()
        self.delay.set()
        self.pause: threading.Event | None = None
        self.reached = threading.Event()
        self.cut_at = 0
        self.length: str | None = None
        self.requests: list[str | None] = []
        self.served = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that hangs up on a web page."""

    def source(self, size: int | None = len(CONTENT), digest: str = SHA) -> Source:
        return Source(f"http://127.0.0.1:{self.server_port}/data.bin", size, digest)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        expected = self.headers.get("Range")
        server.requests.append(expected)
        server.delay.wait(20)
        if server.status:
            self.send_error(server.status)
            return
        start = int(expected[6:-1]) if expected and server.ranges else 0
        total = len(server.content)
        if start >= total > 0:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.send_header("Content-Type", server.kind)
        length = str(total - start) if server.length is None else server.length
        self.send_header("Content-Length", length)
        self.end_headers()
        body = server.content[start:][: server.cut]
        server.served += len(body)
        if server.pause and not server.pause.is_set():
            self.wfile.write(body[: max(0, server.cut_at - start)])
            server.reached.set()
            server.pause.wait(60)
            return
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    with running(Server()) as server:
        yield server


@contextmanager
def running(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fetch(source: Source, root: Path, report=None) -> list[Path]:
    return download("published", root=root, sources={"published": (source,)}, report=report)


def names(root: Path) -> list[str]:
    return sorted(
        p.name for p in (root / "published").iterdir() if not p.name.endswith(".lock")
    )


def test_a_file_arrives_whole_and_is_not_fetched_again(server, tmp_path):
    seen = []
    (path,) = fetch(server.source(), tmp_path, lambda *args: seen.append(args))
    assert path == tmp_path / "published" / "data.bin" and path.read_bytes() == CONTENT
    assert names(tmp_path) == ["data.bin"]
    assert seen[-1] == ("data.bin", len(CONTENT), len(CONTENT)) and len(seen) > 1
    assert fetch(server.source(), tmp_path) == [path]
    assert len(server.requests) == 1


def test_a_broken_transfer_goes_on_where_it_stopped(server, tmp_path):
    server.cut = 1_000_000
    with pytest.raises(
        ConnectionError, match="after 1000000 of 3072000 bytes: run again to continue"
    ):
        fetch(server.source(), tmp_path)
    assert names(tmp_path) == ["data.bin.part"]
    server.cut = None
    (path,) = fetch(server.source(), tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=1000000-"]
    assert server.served == len(CONTENT), "no byte is served twice"


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_server_that_ignores_the_range_starts_over(server, tmp_path, size):
    server.cut, server.ranges = 1_000_000, False
    with pytest.raises(ConnectionError):
        fetch(server.source(size), tmp_path)
    server.cut = None
    (path,) = fetch(server.source(size), tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.served == len(CONTENT) + 1_000_000


def test_a_whole_part_of_unknown_size_is_kept(server, tmp_path):
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "data.bin.part").write_bytes(CONTENT)
    (path,) = fetch(server.source(None), tmp_path)
    assert path.read_bytes() == CONTENT and server.served == 0


def test_a_whole_part_of_known_size_needs_no_request(server, tmp_path):
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "data.bin.part").write_bytes(CONTENT)
    fetch(server.source(), tmp_path)
    assert server.requests == []


def test_a_part_that_is_too_long_is_dropped(server, tmp_path):
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "data.bin.part").write_bytes(CONTENT + b"more")
    (path,) = fetch(server.source(), tmp_path)
    assert path.read_bytes() == CONTENT and server.requests == [None]


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_wrong_digest_is_refused_and_removed(server, tmp_path, algorithm):
    got = hashlib.new(algorithm, CONTENT).hexdigest()
    source = server.source(digest=f"{algorithm}:{'0' * len(got)}")
    with pytest.raises(ValueError, match=f"has the {algorithm} {got}, not 000"):
        fetch(source, tmp_path)
    assert names(tmp_path) == []
    assert fetch(server.source(digest=f"{algorithm}:{got}"), tmp_path)


def test_a_wrong_size_is_refused_and_removed(server, tmp_path):
    with pytest.raises(ValueError, match="has 3072000 bytes, not 3072001"):
        fetch(server.source(len(CONTENT) + 1), tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/octet-stream"])
def test_a_web_page_is_refused(server, tmp_path, kind):
    server.content, server.kind = b"<!DOCTYPE html><p>Log in first", kind
    with pytest.raises(ValueError, match=r"gave a web page, not data\.bin"):
        fetch(server.source(), tmp_path)
    assert names(tmp_path) == []


def test_a_web_page_does_not_cost_what_is_there_already(server, tmp_path):
    server.cut = 1_000_000
    with pytest.raises(ConnectionError):
        fetch(server.source(), tmp_path)
    server.ranges, server.kind = False, "text/html"
    with pytest.raises(ValueError, match="web page"):
        fetch(server.source(), tmp_path)
    assert (tmp_path / "published" / "data.bin.part").stat().st_size == 1_000_000


def test_a_server_that_refuses_or_is_not_there_is_named(server, tmp_path):
    server.status = 404
    with pytest.raises(ConnectionError, match=r"127.*data\.bin answers 404 .*by hand"):
        fetch(server.source(), tmp_path)
    gone = Source("http://127.0.0.1:9/data.bin", 1, SHA)
    with pytest.raises(ConnectionError, match="cannot reach http"):
        fetch(gone, tmp_path)


def test_a_file_that_is_not_the_published_one_is_left_alone(server, tmp_path):
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "data.bin").write_bytes(b"mine")
    with pytest.raises(
        ValueError, match="has 4 bytes, not 3072000: remove it to download it again"
    ):
        fetch(server.source(), tmp_path)
    assert (tmp_path / "published" / "data.bin").read_bytes() == b"mine"


ONE_PROCESS = """
import sys
from pathlib import Path
from advnorm.data.download import download
from advnorm.data.sources import Source
print("ready", flush=True)
source = Source(sys.argv[1], int(sys.argv[2]), sys.argv[3])
print(download("published", root=Path(sys.argv[4]), sources={"published": (source,)})[0])
"""


def test_two_processes_at_once_fetch_once(server, tmp_path):
    server.delay.clear()
    source = server.source()
    command = [sys.executable, "-c", ONE_PROCESS, source.url, str(source.size), SHA]
    pair = [
        subprocess.Popen([*command, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.stdout.readline() for process in pair] == ["ready\n"] * 2
    threading.Timer(0.3, server.delay.set).start()
    printed = [process.communicate(timeout=60)[0].strip() for process in pair]
    assert printed == [str(tmp_path / "published" / "data.bin")] * 2
    assert server.requests == [None] and server.served == len(CONTENT)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("ranges", [True, False])
def test_a_killed_download_never_leaves_a_file_that_looks_complete(
    server, tmp_path, ranges
):
    """SIGKILL after a megabyte more each time, then once to the end."""
    server.ranges, server.pause = ranges, threading.Event()
    source, path = server.source(), tmp_path / "published" / "data.bin"
    command = [sys.executable, "-c", ONE_PROCESS, source.url, str(source.size), SHA]
    part = path.with_name("data.bin.part")
    for kill in range(1, 4):
        server.cut_at = kill * 900_000
        process = subprocess.Popen([*command, str(tmp_path)], stdout=subprocess.PIPE)
        assert server.reached.wait(60)
        process.kill()
        process.communicate()
        server.reached.clear()
        assert not path.exists()
        written = part.read_bytes() if part.exists() else b""
        assert CONTENT.startswith(written) and len(written) < len(CONTENT)
    server.pause.set()
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == CONTENT and names(tmp_path) == ["data.bin"]


def test_a_server_that_sends_too_much_is_cut_off(server, tmp_path):
    server.content = CONTENT * 20
    with pytest.raises(ValueError, match="not 3072000: it is removed") as error:
        fetch(server.source(), tmp_path)
    got = re.search(r"data\.bin\.part has (\d+) bytes", str(error.value))
    assert got and int(got[1]) < len(CONTENT) + 2**21 and names(tmp_path) == []


@pytest.mark.parametrize("length", ["x", "-5", "9" * 5000, ""])
def test_a_length_that_is_no_number_is_ignored(server, tmp_path, length):
    server.length = length
    (path,) = fetch(server.source(), tmp_path)
    assert path.read_bytes() == CONTENT


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(server, tmp_path):
    (tmp_path / "published").mkdir()
    os.mkfifo(tmp_path / "published" / "data.bin")
    with pytest.raises(OSError, match="is a pipe, not a regular file"):
        fetch(server.source(), tmp_path)


def test_a_folder_that_cannot_be_written_is_named(server, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(OSError, match=r"cannot write .*or choose another --data$"):
        fetch(server.source(), blocked)
    monkeypatch.setenv("ADVNORM_DATA", str(blocked))
    with pytest.raises(OSError, match=r"cannot write .*set ADVNORM_DATA to another folder"):
        fetch(server.source(), None)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_a_full_disk_is_named(server, tmp_path):
    (tmp_path / "published").mkdir()
    os.symlink("/dev/full", tmp_path / "published" / "data.bin.part")
    with pytest.raises(OSError, match=r"cannot write .*data\.bin\.part: No space left"):
        fetch(server.source(), tmp_path)


def test_without_locks_the_user_is_warned(server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.warns(UserWarning, match="no file locks"):
        fetch(server.source(), tmp_path)


def test_sets_without_files_and_sets_that_cannot_be_downloaded(tmp_path):
    assert download("digits", root=tmp_path) == []
    assert download("spheres", root=tmp_path) == []
    with pytest.raises(ValueError, match=r"ImageNet needs an account.*image-net\.org"):
        download("imagenet", root=tmp_path)
    with pytest.raises(ValueError, match="of your own"):
        download("folder:x", root=tmp_path)
    with pytest.raises(ValueError, match="did you mean 'mnist'"):
        download("mnits", root=tmp_path)


def test_every_data_set_is_published_computed_or_explained():
    computed = {"digits", "gaussians", "spheres"}
    assert set(DATA) == computed | set(SOURCES) | set(NOT_DOWNLOADABLE)
    for sources in SOURCES.values():
        for source in sources:
            algorithm, _, digits = source.digest.partition(":")
            assert len(digits) == hashlib.new(algorithm).digest_size * 2
            assert source.size is None or source.size > 1000
            assert source.url.startswith("http")


def test_downloaded_files_are_where_the_readers_look(tmp_path):
    """The file names of the table are those of the readers."""
    for name, sources in SOURCES.items():
        argument = {"cifar10-c": ":fog:1", "mnist-c": ":fog"}.get(name, "")
        for source in sources:
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / source.file).write_bytes(b"\0" * 600)
        with pytest.raises(ValueError, match=str(tmp_path / name)):
            load(name + argument, root=tmp_path)
