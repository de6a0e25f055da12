"""Two hosts on one machine: network namespaces with a link between them.

Each has its own addresses, host name and /etc/hosts, and sees the other by that link alone.
They share the file system, as hosts of a cluster share a network folder.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import monotonic, sleep

PREFIX = "advnorm-test"
_numbers = count()


def ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Host:
    """A network namespace. ``private`` is a folder that this host does not share."""

    def __init__(self, name: str, namespace: str, folder: Path) -> None:
        self.name, self.namespace, self.folder = name, namespace, folder
        self.started: list[subprocess.Popen] = []

    def start(self, *command: object, private: Path | None = None, **environment: str):
        """Start a command on this host; what it says goes to :meth:`said`."""
        setup = f"hostname {self.name}; mount --bind {self.folder}/hosts /etc/hosts; "
        if private:
            setup += f"mount -t tmpfs none {private}; "
        enter = ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-ec"]
        with self._log().open("ab") as log:
            process = subprocess.Popen(
                [*enter, setup + 'exec "$@"', "sh", *map(str, command)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def output(self) -> str:
        return self._log().read_text(errors="replace")

    def _log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def pids(self) -> list[int]:
        return [int(pid) for pid in ip("netns", "pids", self.namespace).split()]

    def ranks(self) -> list[int]:
        """Return the processes that torchrun has started here."""
        commands = {pid: Path(f"/proc/{pid}/cmdline") for pid in self.pids()}
        texts = {
            pid: path.read_bytes().replace(b"\0", b" ").decode()
            for pid, path in commands.items()
            if path.exists()
        }
        return [
            pid
            for pid, text in texts.items()
            if "advnorm train" in text and "torch.distributed.run" not in text
        ]

    def die(self) -> None:
        """Kill everything that runs here."""
        end = monotonic() + 30
        while (alive := self.pids()) and monotonic() < end:
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            sleep(0.05)
        for process in self.started:
            process.wait(timeout=30)
        assert not alive

    def cut_link(self) -> None:
        ip("-n", self.namespace, "link", "set", "eth0", "down")

    def mend_link(self) -> None:
        ip("-n", self.namespace, "link", "set", "eth0", "up")


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[Host, Host]]:
    """Make two hosts, host0 and host1; nothing of them is left at the end."""
    _remove_leftovers()
    own = f"{PREFIX}-{os.getpid()}-{next(_numbers)}"
    both = tuple(Host(name, f"{own}-{name}", folder) for name in ("host0", "host1"))
    lines = ["127.0.0.1 localhost", "10.99.0.1 host0", "10.99.0.2 host1"]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    try:
        for host in both:
            ip("netns", "add", host.namespace)
        peer = ["peer", "name", "eth0", "netns", both[1].namespace]
        ip("-n", both[0].namespace, "link", "add", "name", "eth0", "type", "veth", *peer)
        for number, host in enumerate(both, start=1):
            ip("-n", host.namespace, "addr", "add", f"10.99.0.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", host.namespace, "link", "set", device, "up")
        yield both
    finally:
        for host in both:
            if host.namespace in _there():
                host.die()
                ip("netns", "del", host.namespace)  # and its end of the link


def missing() -> str:
    """Say what two hosts need and is not here; an empty text if they can be made."""
    if os.geteuid():
        return "network namespaces need root"
    tools = [
        tool for tool in ("ip", "unshare", "mount", "hostname") if not shutil.which(tool)
    ]
    if tools:
        return f"not installed: {', '.join(tools)}"
    trial = f"{PREFIX}-{os.getpid()}-{next(_numbers)}-trial"
    try:
        ip("netns", "add", trial)
    except OSError as error:
        return f"no network namespace can be made here: {error}"
    try:
        entered = ["ip", "netns", "exec", trial, "unshare", "--uts", "hostname", "trial"]
        done = subprocess.run(entered, capture_output=True, text=True, check=False)
        ip("-n", trial, "link", "add", "name", "eth0", "type", "veth")
        return done.stderr.strip()
    except OSError as error:
        return f"no link can be made here: {error}"
    finally:
        ip("netns", "del", trial)


def _there() -> list[str]:
    return [line.split()[0] for line in ip("netns", "list").splitlines() if line]


def _remove_leftovers() -> None:
    """Remove what tests that were killed have left."""
    for name in _there():
        owner = re.match(rf"{PREFIX}-(\d+)-", name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            Host(name, name, Path()).die()
            ip("netns", "del", name)
