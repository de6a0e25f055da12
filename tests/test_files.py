"""Regular files of a bounded size are read; nothing is written through a link."""

import os
import socket
from pathlib import Path

import pytest

from advnorm import files


@pytest.fixture
def odd(tmp_path) -> dict[str, Path]:
    """Make one of each thing that is no regular file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "to pipe").symlink_to(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(tmp_path)  # the path of a socket may have a hundred characters
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
    names = ("pipe", "folder", "zero", "to pipe", "socket")
    return {name: tmp_path / name for name in names}


@pytest.mark.parametrize(
    "name, kind",
    [
        ("pipe", "a pipe"),
        ("folder", "a folder"),
        ("zero", "a device"),
        ("to pipe", "a pipe"),
        ("socket", "a socket"),
    ],
)
def test_what_is_no_regular_file_is_refused_at_once(odd, name, kind):
    for read in (files.read_bytes, files.read_text, files.open_regular):
        with pytest.raises(OSError, match=f"is {kind}, not a regular file") as error:
            read(odd[name])
        assert error.value.filename == str(odd[name])


def test_a_file_beyond_the_limit_is_refused_and_not_read(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 43)  # eight terabytes of nothing
    for limit in (100, None):
        with pytest.raises(OSError, match="has more than the"):
            files.read_bytes(path, limit)
    path.write_bytes(b"x" * 100)
    assert files.read_bytes(path, 100) == b"x" * 100
    with pytest.raises(OSError, match="has more than the 99 bytes"):
        files.read_bytes(path, 99)
    assert files.read_text("/proc/self/status").startswith("Name"), (
        "its size is said to be 0"
    )


@pytest.mark.parametrize("name", ["pipe", "zero", "to pipe", "folder", "socket"])
def test_only_regular_files_are_added_to_and_locked(odd, name):
    with pytest.raises(OSError, match="not a regular file"):
        files.append(odd[name], b"x")
    with pytest.raises(OSError, match="not a regular file"), files.locked(odd[name]):
        pass


def test_nothing_is_written_through_a_link(tmp_path):
    precious, link = tmp_path / "precious", tmp_path / "link"
    precious.write_text("kept")
    link.symlink_to(precious)
    with pytest.raises(OSError, match="is a link"):
        files.append(link, b"x")
    with pytest.raises(OSError, match="is a link"), files.locked(link):
        pass
    with files.locked(tmp_path / "lock") as file:
        assert os.path.samestat(os.fstat(file.fileno()), (tmp_path / "lock").stat())
    trap = tmp_path / f".new.{os.getpid()}.tmp"
    trap.symlink_to(precious)
    files.write_atomically(tmp_path / "new", b"content")
    files.write_atomically(link, b"content")
    assert precious.read_text() == "kept"
    assert link.read_text() == (tmp_path / "new").read_text() == "content"
    assert not link.is_symlink() and not trap.exists()


@pytest.mark.parametrize("name", ["pipe", "folder", "zero", "to pipe", "socket"])
def test_what_is_no_regular_file_is_not_cleared(odd, name):
    leftover = odd[name].with_name(".a.1.tmp")
    odd[name].rename(leftover)
    files.clear_leftovers(leftover.parent)
    assert os.path.lexists(leftover)


def test_a_lock_keeps_what_is_in_its_file(tmp_path):
    path = tmp_path / "lock"
    path.write_text("kept")
    with files.locked(path), pytest.raises(ValueError, match="another process"):
        files.locked(path).__enter__()
    assert path.read_text() == "kept"


def test_what_is_appended_comes_after_what_is_there(tmp_path):
    for count, line in enumerate((b"a\n", b"b\n")):
        assert files.append(tmp_path / "lines", line) == 4 * count + 2
        assert files.append(tmp_path / "lines", line, sync=False) == 4 * count + 4
    assert (tmp_path / "lines").read_bytes() == b"a\na\nb\nb\n"
