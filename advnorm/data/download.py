"""Download the published files of a data set: resumed, checked, and complete or absent."""

import os
from collections.abc import Callable, Iterator, Mapping
from hashlib import file_digest
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from advnorm.data.blob import is_html
from advnorm.data.locate import default_root
from advnorm.data.sources import NOT_DOWNLOADABLE, SOURCES, Source
from advnorm.files import locked, open_regular, sync_folder

Report = Callable[[str, int, int], None]
"""Called with a file's name, its bytes so far and the bytes expected (0: unknown)."""

MAX_FILE = 1 << 40
"""Most bytes of a file whose size is not published."""
_CHUNK = 1 << 20
_TIMEOUT = 60
_RANGE_NOT_SATISFIABLE = 416
_PARTIAL = 206


def download(
    name: str,
    *,
    root: Path | None = None,
    report: Report | None = None,
    sources: Mapping[str, tuple[Source, ...]] = SOURCES,
) -> list[Path]:
    """Download the files of a data set into ``root/name`` and return their paths.

    A file is written as ``<file>.part``; an interrupted transfer keeps it, and the next
    call continues from there. Only a file of the published size and digest gets its name.
    Concurrent processes wait for the first one. Sets without files return an empty list.
    """
    kind = name.partition(":")[0]
    if kind in NOT_DOWNLOADABLE:
        raise ValueError(NOT_DOWNLOADABLE[kind])
    if kind not in sources:
        return _no_files(kind)
    folder = (root or default_root()) / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_download_file(source, folder, report) for source in sources[kind]]
    except OSError as error:
        if error.filename is None:  # an error of the network
            raise
        raise OSError(
            error.errno,
            f"cannot write {error.filename}: {error.strerror}; free space or "
            + ("choose another --data" if root else "set ADVNORM_DATA to another folder"),
        ) from error


def _no_files(kind: str) -> list[Path]:
    from advnorm.data import DATA

    DATA[kind]  # an unknown name fails here, with the choices
    return []


def _download_file(source: Source, folder: Path, report: Report | None) -> Path:
    path = folder / source.file
    with locked(folder / f".{source.file}.lock", wait=True):
        if path.exists():
            _check(path, source, "remove it to download it again")
            return path
        part = path.with_name(path.name + ".part")
        if part.exists() and source.size is not None and part.stat().st_size > source.size:
            part.unlink()
        if not part.exists() or part.stat().st_size != source.size:
            _transfer(source, part, report)
        try:
            _check(part, source, "it is removed: try again later, or download it by hand")
        except ValueError:
            part.unlink()
            raise
        part.replace(path)
        sync_folder(folder)
    return path


def _transfer(source: Source, part: Path, report: Report | None) -> None:
    """Download what is missing of ``part``, or all where the server ignores the range."""
    have = part.stat().st_size if part.exists() else 0
    response = _open(source.url, have)
    if response is None:  # the part may be complete: the digest decides
        return
    with response:
        if "html" in response.headers.get("Content-Type", ""):
            raise ValueError(
                f"{source.url} gave a web page, not {source.file}: "
                "try again later, or download the file by hand"
            )
        if response.status != _PARTIAL or not _continues(response, have):
            have = 0
        length = response.headers.get("Content-Length", "")
        total = (
            have + int(length)
            if length.isdecimal() and len(length) < 20
            else source.size or 0
        )
        have = _append(
            response,
            part,
            have,
            lambda n: report and report(part.stem, n, total),
            max_bytes=MAX_FILE if source.size is None else source.size,
        )
    if have < min(total, source.size or total) and not is_html(_head(part)):
        raise ConnectionError(
            f"{source.url} was interrupted after {have} of {total} bytes: "
            f"run again to continue from there ({part} is kept)"
        )


def _open(url: str, have: int) -> HTTPResponse | None:
    headers = {"User-Agent": "advnorm", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=_TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == _RANGE_NOT_SATISFIABLE and have:
            return None
        raise ConnectionError(
            f"{url} answers {error.code} {error.reason}: try again later, or download the "
            "file by hand"
        ) from error
    except (OSError, HTTPException) as error:
        raise ConnectionError(f"cannot reach {url} ({error}): try again later") from error
    return response


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    """Yield the chunks that arrive, until the connection ends or breaks."""
    try:
        while chunk := response.read(_CHUNK):
            yield chunk
    except (OSError, HTTPException):
        return


def _continues(response: HTTPResponse, have: int) -> bool:
    return response.headers.get("Content-Range", "").startswith(f"bytes {have}-")


def _append(
    response: HTTPResponse,
    part: Path,
    have: int,
    report: Callable[[int], object],
    *,
    max_bytes: int,
) -> int:
    """Write what arrives after the first ``have`` bytes; return the size.

    Stops after ``max_bytes``, however much the server sends.
    """
    try:
        with part.open("ab" if have else "wb") as file:
            for chunk in _chunks(response):
                file.write(chunk)
                have += len(chunk)
                report(have)
                if have > max_bytes:
                    break
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # the error of a full disk does not name the file
        raise OSError(error.errno, error.strerror, str(part)) from error
    return have


def _check(path: Path, source: Source, remedy: str) -> None:
    """Refuse a file that is not the published one."""
    if is_html(_head(path)):
        raise ValueError(f"{source.url} gave a web page, not {source.file}: {remedy}")
    size = path.stat().st_size
    if source.size is not None and size != source.size:
        raise ValueError(f"{path} has {size} bytes, not {source.size}: {remedy}")
    algorithm, _, expected = source.digest.partition(":")
    with open_regular(path) as file:
        digest = file_digest(file, algorithm).hexdigest()
    if digest != expected:
        raise ValueError(f"{path} has the {algorithm} {digest}, not {expected}: {remedy}")


def _head(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(64)
