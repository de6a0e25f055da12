"""Checkpoints: whole or not there, damage detected, named and survived."""

import os
import random
import signal
import time

import pytest
import torch

from advnorm.training import checkpoints
from advnorm.training.checkpoints import load, read, save


def tensors(step):
    return {"a": torch.full((200_000,), float(step)), "b": torch.tensor([step])}


def test_round_trip_keeps_every_bit_of_every_dtype(tmp_path):
    named = {
        str(dtype): torch.randn(5).to(dtype)
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.bool)
    }
    save(tmp_path, "state", 3, named, {"x": 0.1 + 0.2})
    checkpoint = load(tmp_path, "state", warnings=[])
    assert checkpoint.facts == {"x": 0.1 + 0.2}
    assert all(torch.equal(checkpoint.tensors[name], named[name]) for name in named)


def test_two_of_a_kind_are_kept(tmp_path):
    for step in (1, 2, 10, 100):
        save(tmp_path, "state", step, tensors(step), {})
    save(tmp_path, "best", 1, tensors(1), {})
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert names == [
        "best-00000001.safetensors",
        "state-00000010.safetensors",
        "state-00000100.safetensors",
    ]


def test_fifty_kills_while_saving_always_leave_a_loadable_checkpoint(tmp_path):
    rng, landed = random.Random(0), set()
    save(tmp_path, "state", 0, tensors(0), {"step": 0})
    for _ in range(50):
        first = load(tmp_path, "state", warnings=[]).facts["step"] + 1
        pid = os.fork()
        if not pid:
            try:
                for step in range(first, first + 10_000):
                    save(tmp_path, "state", step, tensors(step), {"step": step})
            finally:
                os._exit(1)
        time.sleep(rng.uniform(0.001, 0.03))
        os.kill(pid, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
        warnings: list[str] = []
        checkpoint = load(tmp_path, "state", warnings=warnings)
        assert checkpoint is not None and not warnings
        step = checkpoint.facts["step"]
        assert (
            checkpoint.tensors["b"].item() == step
            and (checkpoint.tensors["a"] == step).all()
        )
        landed |= {path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")}
    assert landed, "no kill hit a write: the test shows nothing"


def damage_flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damage_truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def damage_empty(path):
    path.write_bytes(b"")


def damage_remove(path):
    path.unlink()


def damage_html(path):
    path.write_text("<html>404</html>")


@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
@pytest.mark.parametrize(
    "damage", [damage_flip, damage_truncate, damage_empty, damage_remove, damage_html]
)
def test_damage_is_named_and_the_previous_checkpoint_used(tmp_path, damage, suffix):
    save(tmp_path, "state", 1, tensors(1), {"step": 1})
    newest = save(tmp_path, "state", 2, tensors(2), {"step": 2})
    damage(newest.with_suffix(suffix))
    warnings: list[str] = []
    checkpoint = load(tmp_path, "state", warnings=warnings)
    assert checkpoint.facts["step"] == 1 and checkpoint.tensors["b"].item() == 1
    if not (damage is damage_remove and suffix == ".json"):  # that one was never finished
        assert len(warnings) == 1 and "state-00000002" in warnings[0]


def test_every_flipped_byte_of_a_manifest_is_noticed(tmp_path):
    path = save(tmp_path, "state", 1, {"b": torch.tensor([1])}, {"step": 1})
    manifest = path.with_suffix(".json")
    good = manifest.read_bytes()
    for position in range(len(good)):
        content = bytearray(good)
        content[position] ^= 1
        manifest.write_bytes(content)
        with pytest.raises(checkpoints.DamagedError):
            read(manifest)


def test_nothing_there_is_none(tmp_path):
    assert load(tmp_path, "state", warnings=[]) is None


def test_a_damaged_one_is_not_counted_among_the_two_that_are_kept(tmp_path):
    """Training came back to step 20 and goes on from there."""
    for step in (10, 20, 30):
        save(tmp_path, "state", step, tensors(step), {})
    (tmp_path / "state-00000030.safetensors").write_bytes(b"damaged")
    assert load(tmp_path, "state", warnings=[]).path.name == "state-00000020.safetensors"
    for step in (22, 24):
        save(tmp_path, "state", step, tensors(step), {})
        assert checkpoints.manifests(tmp_path, "state")[-1].stem == f"state-{step:08}"
    names = sorted(path.stem for path in tmp_path.glob("*.safetensors"))
    assert names == ["state-00000022", "state-00000024"]
