"""Run folders that were made to hurt: crafted weights, links, clocks; and a slow rank."""

import ast
import json
import os
import socket
import struct
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import slow_ranks
import torch
import torch.multiprocessing as mp
from safetensors.torch import save as dump_tensors

from advnorm import cli
from advnorm.recipe import from_yaml, override
from advnorm.records import Run
from advnorm.runs import evaluate_run
from advnorm.training import checkpoints, train

ROOT = Path(__file__).parents[2] / "advnorm"
FACTS = {"state": {}, "epochs": 1, "data": "x"}


def entered(folder: Path, content: bytes, kind: str = "state", step: int = 9) -> None:
    """Write a checkpoint whose size and digest are right."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{kind}-{step:08}.safetensors"
    path.write_bytes(content)
    manifest = {"sha256": sha256(content).hexdigest(), "size": len(content)}
    path.with_suffix(".json").write_text(json.dumps(manifest))


def crafted(header: str | dict, data: bytes = b"") -> bytes:
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text)) + text.encode() + data


def of_facts(facts: str) -> bytes:
    return dump_tensors({"a": torch.ones(2)}, metadata={"facts": facts})


def tensor(dtype="F32", shape=(1,), offsets=(0, 4)) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


META = {"__metadata__": {"facts": "{}"}}
HOSTILE = {
    "empty": b"",
    "no JSON": crafted("x"),
    "long header": struct.pack("<Q", 2**63) + b"{}",
    "deep": crafted('{"a":' * 100_000),
    "deep in a tensor": crafted('{"a": {"shape": ' + "[" * 100_000),
    "overlapping": crafted(META | {"a": tensor(), "b": tensor()}, b"1234"),
    "beyond": crafted(META | {"a": tensor(offsets=(0, 2**60))}, b"1234"),
    "backwards": crafted(META | {"a": tensor(offsets=(4, 0))}, b"1234"),
    "huge": crafted(META | {"a": tensor(shape=(2**40, 2**40))}, b"1234"),
    "negative": crafted(META | {"a": tensor(shape=(-1,))}, b"1234"),
    "unknown type": crafted(META | {"a": tensor("X99")}, b"1234"),
    "more data": crafted(META | {"a": tensor()}, b"12345678"),
    "no metadata": crafted({"a": tensor()}, b"1234"),
    "no facts": crafted({"__metadata__": {}, "a": tensor()}, b"1234"),
    "facts deep": of_facts('{"a":' * 100_000),
    "facts a list": of_facts("[1, 2]"),
    "facts no JSON": of_facts("x"),
    "facts a huge number": of_facts('{"a": ' + "9" * 100_000 + "}"),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_crafted_weights_with_the_right_digest_are_damaged(tmp_path, content):
    good = dump_tensors({"a": torch.ones(1)}, metadata={"facts": json.dumps({"step": 1})})
    entered(tmp_path, good, step=1)
    entered(tmp_path, content, step=2)
    warnings: list[str] = []
    checkpoint = checkpoints.load(tmp_path, "state", warnings=warnings)
    assert checkpoint is not None and checkpoint.facts == {"step": 1}
    assert (
        len(warnings) == 1 and "state-00000002.safetensors is no checkpoint" in warnings[0]
    )
    assert len(warnings[0]) < 1000


def test_an_empty_tensor_of_an_absurd_shape_does_no_harm(tmp_path):
    shape = (0, 2**40)
    entered(tmp_path, crafted(META | {"a": tensor(shape=shape, offsets=(0, 0))}))
    warnings: list[str] = []
    checkpoint = checkpoints.load(tmp_path, "state", warnings=warnings)
    assert (
        checkpoint.tensors["a"].numel() == 0
        if checkpoint
        else "no checkpoint" in warnings[0]
    )


@pytest.mark.parametrize(
    "content",
    ['{"a":' * 100_000, '{"sha256": "x", "size": ' + "9" * 100_000 + "}", "[]", "\xff"],
    ids=["deep", "number", "list", "text"],
)
def test_a_hostile_manifest_is_damaged(tmp_path, content):
    entered(tmp_path, b"")
    (tmp_path / "state-00000009.json").write_text(content)
    warnings: list[str] = []
    assert checkpoints.load(tmp_path, "state", warnings=warnings) is None
    assert "state-00000009.json is damaged" in warnings[0] and len(warnings[0]) < 1000


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "zero"])
def test_a_checkpoint_that_is_no_regular_file_is_not_waited_for(tmp_path, suffix, kind):
    entered(tmp_path, b"x")
    path = tmp_path / f"state-00000009{suffix}"
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    warnings: list[str] = []
    assert checkpoints.load(tmp_path, "state", warnings=warnings) is None
    assert "not a regular file" in warnings[0]


@pytest.fixture
def stopped(tiny, tmp_path) -> Run:
    """Return a run of two epochs that is to have three."""
    run = train(override(tiny, ["epochs=2"]), tmp_path / "run")
    text = run.recipe_text().replace("\nepochs: 2\n", "\nepochs: 3\n")
    (run.path / "recipe.yaml").write_text(text)
    return run


def newest(run: Run):
    return checkpoints.load(run.checkpoints, "state", warnings=[])


def replaced(run: Run, tensors=None, facts=None) -> None:
    """Put other content into the newest checkpoint, with its digest."""
    weights = newest(run)
    facts = weights.facts if facts is None else facts
    content = dump_tensors(
        weights.tensors if tensors is None else tensors,
        metadata={"facts": json.dumps(facts)},
    )
    entered(run.checkpoints, content, step=weights.facts["state"]["step"])


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"state": [], "epochs": 2, "data": ""},
        {"state": {"epoch": "x", "totals": {}}, "epochs": 2, "data": ""},
        {"state": {"epoch": 10**30, "totals": 3}, "epochs": None, "data": 1},
    ],
    ids=str,
)
def test_a_resumed_run_refuses_facts_that_make_no_sense(stopped, tiny, facts):
    replaced(stopped, facts=facts)
    with pytest.raises(
        ValueError, match=r"the checkpoint is not of a training .*train anew"
    ):
        train(override(tiny, ["epochs=3"]), stopped.path, resume=True)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda named: {}, "Missing key"),
        (lambda named: named | {"model/strange": torch.ones(3)}, "Unexpected key"),
        (lambda named: {k: v[..., None] for k, v in named.items()}, "size mismatch"),
        (lambda named: named | {"optimizer/99/a": torch.ones(1)}, "not of this optimizer"),
        (lambda named: named | {"optimizer/x/a": torch.ones(1)}, "not of this optimizer"),
        (lambda named: named | {"optimizer/0": torch.ones(1)}, "not of this optimizer"),
        (lambda named: named | {"optimizer/0/a/b": torch.ones(1)}, "not of this optimizer"),
    ],
)
def test_a_resumed_run_refuses_weights_of_something_else(stopped, tiny, change, words):
    replaced(stopped, tensors=change(newest(stopped).tensors))
    with pytest.raises(ValueError, match=words) as error:
        train(override(tiny, ["epochs=3"]), stopped.path, resume=True)
    assert len(str(error.value)) < 1000


# Links


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def command(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["advnorm", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code or 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "part", ["results", "verdicts", "examples", "checkpoints", "audits"]
)
def test_nothing_is_written_or_removed_behind_a_linked_folder(
    stopped, part, tmp_path, monkeypatch, capsys
):
    precious, folder = tmp_path / "precious", stopped.path / part
    folder.rename(precious) if folder.exists() else precious.mkdir()
    (precious / ".mine.tmp").write_text("kept")
    folder.symlink_to(precious)
    before = files_of(precious)
    recipe = stopped.path / "recipe.yaml"
    resume = ("train", recipe, "--out", stopped.path, "--resume")
    for arguments in (("evaluate", stopped.path), resume):
        code, output = command(monkeypatch, capsys, *arguments)
        assert code == 2 and f"{part} is a link to another folder" in output
        assert "Traceback" not in output
    assert files_of(precious) == before


def test_a_linked_lock_keeps_what_it_leads_to(stopped, tmp_path, monkeypatch, capsys):
    precious, lock = tmp_path / "precious", stopped.path / ".lock"
    precious.write_text("kept")
    lock.unlink()
    lock.symlink_to(precious)
    code, output = command(monkeypatch, capsys, "evaluate", stopped.path)
    assert code == 2 and ".lock: is a link, not a regular file" in output
    assert precious.read_text() == "kept"


@pytest.mark.parametrize("name", ["metrics.jsonl", "monitor.jsonl"])
def test_lines_are_not_written_through_a_link(stopped, tiny, name, tmp_path):
    (stopped.path / name).unlink(missing_ok=True)
    (stopped.path / name).symlink_to(tmp_path / "nowhere")
    often = ("questions: []\n  every: 10\n", "questions: [gradient_norm]\n  every: 1\n")
    watched = stopped.recipe_text().replace(*often)
    (stopped.path / "recipe.yaml").write_text(watched)
    with pytest.raises(OSError, match=f"is a link, not a regular file: .*{name}"):
        train(from_yaml(watched), stopped.path, resume=True)
    assert not (tmp_path / "nowhere").exists()


def test_a_run_folder_may_be_a_link_itself(stopped, tiny, tmp_path):
    (tmp_path / "link").symlink_to(stopped.path)
    run = train(override(tiny, ["epochs=3"]), tmp_path / "link", resume=True)
    assert len(run.epochs()) == 3 and len(Run.open(stopped.path).epochs()) == 3


# Paths of a recipe


@pytest.mark.parametrize("start", ["/dev/zero", "/", "../..", "\0", "a" * 999, "pipe"])
def test_a_start_that_is_no_run_is_one_sentence(tiny, start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises((ValueError, OSError)) as error:
        train(override(tiny, []).model_copy(update={"init_from": start}), tmp_path / "run")
    assert len(str(error.value)) < 3000


def test_a_start_elsewhere_is_read_and_left_as_it_is(tiny, tmp_path, monkeypatch):
    first = train(tiny, tmp_path / "elsewhere" / "first")
    before = files_of(first.path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    train(override(tiny, ["init_from=../elsewhere/first", "epochs=1"]), Path("run"))
    assert files_of(first.path) == before


# Clocks


def test_file_times_of_the_future_and_the_past_change_nothing(tiny, tmp_path, fingerprint):
    whole = train(override(tiny, ["epochs=3"]), tmp_path / "whole")
    run = train(override(tiny, ["epochs=2"]), tmp_path / "run")
    text = run.recipe_text().replace("\nepochs: 2\n", "\nepochs: 3\n")
    (run.path / "recipe.yaml").write_text(text)
    for number, path in enumerate(sorted(run.path.rglob("*"))):
        when = (0, 4_102_444_800)[number % 2]  # 1970 and 2100
        os.utime(path, (when, when))
    train(override(tiny, ["epochs=3"]), run.path, resume=True)
    assert fingerprint(run) == fingerprint(whole)


def test_a_clock_that_jumps_back_gives_no_negative_time(tiny, tmp_path, monkeypatch):
    moments = iter(range(10**9, 0, -1000))
    monkeypatch.setattr("time.time", lambda: float(next(moments)))
    run = train(tiny, tmp_path / "run")
    results = evaluate_run(run, tiny)
    assert all(epoch.seconds >= 0 for epoch in run.epochs())
    assert all(result.seconds >= 0 for result in results)


def test_no_part_of_the_package_reads_the_wall_clock():
    clocks = {"st_mtime", "st_ctime", "st_atime", "getmtime", "getctime", "time_ns"}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
                names = {alias.name for alias in node.names}
                assert names <= {"monotonic", "perf_counter", "timedelta", "sleep"}, path
            if isinstance(node, ast.Import):
                assert not {a.name for a in node.names} & {"time", "datetime"}, path
            assert getattr(node, "attr", "") not in clocks, path


# Ranks


def two_ranks(out: Path, place: str, *, seconds: float, limit: float) -> list[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = (port, place, seconds, limit, str(out))
    mp.spawn(slow_ranks.rank, args=arguments, nprocs=2)
    return [json.loads((out / f"{me}.json").read_text()) for me in range(2)]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("place", ["before", "after"])
def test_a_slow_rank_is_waited_for(tmp_path, place):
    assert two_ranks(tmp_path, place, seconds=3, limit=120) == ["1", "1"]


@pytest.mark.slow
@pytest.mark.ci
def test_a_rank_that_does_not_answer_is_one_sentence(tmp_path):
    output = two_ranks(tmp_path, "after", seconds=12, limit=4)
    for me, text in enumerate(output):
        assert text.startswith(f"rank {me} on ") and " has lost " in text
        assert "\n" not in text and ".cc:" not in text
