"""What a message advises is done as a newcomer would, and brings files where they belong."""

import re
import shlex
import signal
import sys
from math import prod
from pathlib import Path

import pytest

import advnorm.training
from advnorm import cli, demo
from advnorm.data import download, load
from advnorm.data.blob import Blob
from advnorm.data.streaming import ArchiveStore

DAMAGED = {
    "mnist": [
        f"mnist/{split}-{kind}-ubyte.gz"
        for split in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    ],
    "cifar10": ["cifar10/cifar-10-binary.tar.gz"],
    "mnist-c:fog": ["mnist_c.zip"],
    "tiny-imagenet": ["tiny-imagenet/tiny-imagenet-200.zip"],
    "imagenette": ["imagenette/imagenette2-160.tgz"],
}


def advised(name: str, root: Path | None) -> str:
    """Return the sentence that a set is refused with."""
    with pytest.raises((FileNotFoundError, ValueError)) as caught:
        load(name, root=root)
    return str(caught.value)


@pytest.fixture
def obey(monkeypatch, capsys):
    """Return a function that does what a sentence advises, and where it puts files."""
    folders = []
    monkeypatch.setattr(
        download, "_download_file", lambda source, folder, report: folders.append(folder)
    )

    def of(sentence: str) -> set[Path]:
        folders.clear()
        monkeypatch.setattr(sys, "argv", shlex.split(sentence.partition("run: ")[2]))
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert not end.value.code, capsys.readouterr().err
        return set(folders)

    return of


@pytest.mark.parametrize("name", DAMAGED)
def test_a_missing_set_is_brought_to_where_it_was_looked_for(obey, tmp_path, name):
    kind, root = name.partition(":")[0], tmp_path / "my data"
    sentence = advised(name, root)
    assert f"no {kind} under {root}" in sentence
    assert obey(sentence) == {root / kind}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_set_is_brought_to_where_it_was_found(obey, tmp_path, name):
    root = tmp_path / "my data"
    for file in DAMAGED[name]:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(b"\x1f\x8b damaged")
    sentence = advised(name, root)
    removed = sentence.partition(": remove ")[2].partition(" and run")[0]
    first = Path(sentence.partition(" is ")[0] if removed == "it" else removed)
    assert first == root / DAMAGED[name][0]
    assert obey(sentence) == {root / name.partition(":")[0]}


def test_the_usual_place_need_not_be_said(obey, tmp_path, monkeypatch):
    monkeypatch.setenv("ADVNORM_DATA", str(tmp_path / "usual"))
    sentence = advised("mnist", None)
    assert "--data" not in sentence
    assert obey(sentence) == {tmp_path / "usual" / "mnist"}
    assert advised("mnist", tmp_path / "usual") == sentence


def test_unpacked_annotations_that_are_damaged_are_got_again(obey, tmp_path):
    folder = tmp_path / "tiny-imagenet" / "tiny-imagenet-200"
    (folder / "val").mkdir(parents=True)
    (folder / "val" / "val_annotations.txt").write_text("no class")
    sentence = advised("tiny-imagenet", tmp_path)
    assert f"without a file name and a class: remove {folder} and run: " in sentence
    assert obey(sentence) == {tmp_path / "tiny-imagenet"}


def test_an_image_of_an_archive_has_the_archives_remedy():
    packed = ArchiveStore(
        [Blob("a.zip/x.png", b"12", "remove a.zip"), Blob("y", b"3", "no")]
    )
    assert packed.blob(0) == Blob("a.zip/x.png", b"12", "remove a.zip")
    assert packed.blob(1).remedy == "remove a.zip"


TINY = (
    "data={train: 60, test: 20}",
    "model.options={depth: 1, width: 4}",
    "objective.name=standard",
    "epochs=1",
    "batch_size=20",
    "validation={samples: 10, steps: 1}",
    "evaluation={conditions: [clean]}",
)


@pytest.fixture
def command(monkeypatch, capsys):
    """Return what a command says, with its exit code."""

    def of(*words):
        monkeypatch.setattr(sys, "argv", ["advnorm", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return (end.value.code or 0, *capsys.readouterr())

    return of


def training(*changes: str) -> list[str]:
    sets = [word for change in (*TINY, *changes) for word in ("--set", change)]
    return ["train", "digits.pgd", *sets]


def idx(*shape: int) -> bytes:
    header = bytes((0, 0, 8, len(shape))) + b"".join(n.to_bytes(4, "big") for n in shape)
    return header + bytes(n % 10 for n in range(prod(shape)))


def test_what_follows_training_finds_the_same_data(command, tmp_path, monkeypatch):
    """Data that are only where ``--data`` says, and paths with a space in them."""
    monkeypatch.setenv("ADVNORM_DATA", str(tmp_path / "empty"))
    data, out = tmp_path / "my data", tmp_path / "my runs" / "a"
    (data / "mnist").mkdir(parents=True)
    for split in ("train", "t10k"):
        (data / "mnist" / f"{split}-images-idx3-ubyte").write_bytes(idx(100, 28, 28))
        (data / "mnist" / f"{split}-labels-idx1-ubyte").write_bytes(idx(100))
    words = [*training("data.name=mnist"), "--out", str(out), "--data", str(data)]
    for _ in range(2):
        code, output, error = command(*words)
        assert code == 0, error
        words = shlex.split(output.partition("next: ")[2])[1:]
    assert (out / "results" / "clean.json").is_file()


def test_a_stopped_training_goes_on_with_the_same_data_and_device(command, monkeypatch):
    def stop(*args, **settings):
        stopped = advnorm.training.StoppedError(signal.SIGTERM)
        stopped.resume = "advnorm train 'a b/recipe.yaml' --out 'a b' --resume"
        raise stopped

    monkeypatch.setattr(advnorm.training, "train", stop)
    words = [*training(), "--out", "a b", "--data", "c d", "--device", "cpu"]
    code, _, error = command(*words)
    assert code == 128 + signal.SIGTERM
    assert shlex.split(error.partition("go on with: ")[2]) == [
        *("advnorm", "train", "a b/recipe.yaml", "--out", "a b", "--resume"),
        *("--data", "c d", "--device", "cpu"),
    ]


def test_a_stopped_demo_goes_on_as_a_whole(command, monkeypatch):
    def stop(out, progress):
        stopped = advnorm.training.StoppedError(signal.SIGTERM)
        stopped.resume = "advnorm train one of its runs"
        raise stopped

    monkeypatch.setattr(demo, "run", stop)
    _, _, error = command("demo", "--out", "a b")
    assert error.endswith("go on with: advnorm demo --out 'a b'\n")


def test_images_that_are_damaged_can_be_had_again(command, tmp_path):
    out, page = tmp_path / "my run", tmp_path / "page.html"
    attacked = "evaluation={conditions: [fgsm], threat: {eps: [0.1]}}"
    assert command(*training(attacked), "--out", str(out))[0] == 0
    assert command("evaluate", str(out))[0] == 0
    images = out / "examples" / "fgsm_linf_0.1.safetensors"
    whole = images.read_bytes()
    images.write_bytes(whole[:5])
    _, _, error = command("report", str(out), "--out", str(page))
    assert error.startswith(f"advnorm: {images} is damaged")
    named = re.search(r"remove (\S+ \S+\.json) and (\S+ \S+\.json) too", error)
    images.unlink()
    assert command("report", str(out), "--out", str(page))[0] == 0
    for path in map(Path, named.groups()):
        path.unlink()
    assert command("evaluate", str(out))[0] == 0
    assert images.read_bytes() == whole
