"""Freed memory is kept while it is wanted, and then given back."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from advnorm import allocator
from advnorm.allocator import freed_memory_kept

LARGE = 2**24  # numbers in a block of 64 MB, beyond what glibc keeps by itself
PAGES = 4 * LARGE // 4096

pytestmark = pytest.mark.skipif(allocator._glibc() is None, reason="about glibc's defaults")


def new_pages() -> float:
    """Make and free a block time after time; return the shares that had new pages."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(LARGE)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / PAGES / 10


def resident() -> float:
    """Return the memory of this process, in blocks."""
    return int(Path("/proc/self/statm").read_text().split()[1]) / PAGES


def kept(block: int) -> float:
    """Return how much of a freed block stays, as a share."""
    before = resident()
    torch.ones(block * LARGE)
    return (resident() - before) / block


@pytest.mark.parametrize("name", ["take_over", "give_back", "nest"])
def test_in_a_new_process(name):
    """Other tests leave holes in this one's memory, in which a block fits."""
    command = f"import test_allocator as t; t.{name}()"
    ended = subprocess.run([sys.executable, "-c", command], cwd=Path(__file__).parent)
    assert ended.returncode == 0


def take_over():
    """Take a large block over, and its pages too."""
    assert new_pages() > 0.9
    with freed_memory_kept():
        new_pages()  # the first ones are laid out side by side
        assert new_pages() < 0.1


def give_back():
    """Give back what is free at the end."""
    before = resident()
    with freed_memory_kept():
        assert kept(12) > 0.9
    assert resident() < before + 0.5
    assert kept(13) < 0.1


def test_it_goes_back_after_an_error_too():
    with pytest.raises(KeyError), freed_memory_kept():
        raise KeyError
    assert kept(14) < 0.1


def nest():
    """Nest two: the inner one ends nothing."""
    with freed_memory_kept():
        with freed_memory_kept():
            pass
        assert kept(15) > 0.9


def test_nothing_is_done_for_another_device():
    with freed_memory_kept(torch.empty(0, device="meta")):
        assert kept(16) < 0.1


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_TRIM_THRESHOLD_", "1000"), ("GLIBC_TUNABLES", "glibc.malloc.mmap_max=9")],
)
def test_a_library_that_the_user_has_set_is_left_alone(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert allocator._glibc.__wrapped__() is None


def test_settings_of_other_parts_of_the_library_do_not_count(monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=1024")
    assert allocator._glibc.__wrapped__() is not None
