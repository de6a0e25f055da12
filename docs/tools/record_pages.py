"""The pages of a run folder's files: fields with their meaning, and a JSON schema each."""

import json
from typing import Any, NamedTuple

from docstrings import field_docs, markdown, one_line
from models import default_text, slug, type_text
from pydantic import BaseModel

from advnorm import records
from advnorm.records import Record
from advnorm.training.checkpoints import Manifest


class File(NamedTuple):
    """A file of a run folder, or beside it."""

    path: str
    record: type[Record] | None
    text: str


FILES = (
    File("recipe.yaml", None, "The recipe in full, defaults included: [keys](recipe.md)."),
    File("environment.json", records.Environment, "Machine and versions."),
    File("compile.json", records.CompileDecision, "What `compile: auto` decided."),
    File("metrics.jsonl", records.Epoch, "One line an epoch."),
    File("monitor.jsonl", records.MonitoredStep, "One line a monitored step."),
    File(
        "checkpoints/KIND-STEP.safetensors",
        None,
        "Tensors by name; `KIND` is `best` or `last`. Facts that are no tensors are JSON "
        "in the header's metadata, under `facts`.",
    ),
    File(
        "checkpoints/KIND-STEP.json",
        Manifest,
        "Digest and size of the file of that name. A checkpoint without it was never "
        "finished.",
    ),
    File("results/KEY.json", records.Result, "One condition."),
    File("verdicts/KEY.json", records.Verdicts, "One entry a sample, same `KEY`."),
    File(
        "examples/KEY.safetensors",
        None,
        "A few adversarial images and the clean ones, same `KEY`.",
    ),
    File("audits/KEY.json", records.Audit, "Is the robustness real?"),
    File("diagnoses/QUESTION.json", records.Diagnosis, "The answer to one question."),
    File("report.html", None, "The page that `advnorm report` writes."),
)
BESIDE = (
    File("study.json", records.Study, "The answer of `advnorm study`."),
    File(
        "PAPER/ARTEFACT-SCALE.json",
        records.Reproduction,
        "A table or figure that `advnorm reproduce` made.",
    ),
    File("the --out of transfer", records.TransferMatrix, "`advnorm transfer`."),
)


def files() -> dict[str, str]:
    """Return the page, and the schema of each record, by their paths."""
    schemas = {
        f"schemas/{file.record.__name__}.json": json.dumps(schema(file.record), indent=2)
        for file in (*FILES, *BESIDE)
        if file.record
    }
    return {"run-folder.md": page(), **schemas}


def schema(record: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a record, with the docstrings of its fields."""
    described = record.model_json_schema(mode="serialization")
    parts = {record.__name__: described, **described.get("$defs", {})}
    for one in reachable(record):
        docs = field_docs(one)
        for name, field in parts.get(one.__name__, {}).get("properties", {}).items():
            if name in docs:
                field["description"] = " ".join(markdown(docs[name]).split())
    return described


def reachable(record: type[BaseModel]) -> list[type[BaseModel]]:
    """Return a record and all records inside it."""
    records, waiting = [], [record]
    while waiting:
        first = waiting.pop(0)
        if first not in records:
            records.append(first)
            waiting += [m for field in first.model_fields.values() for m in _inner(field)]
    return records


def _inner(field: Any) -> list[type[BaseModel]]:
    from typing import get_args

    parts, models = [field.annotation], []
    while parts:
        part = parts.pop(0)
        if isinstance(part, type) and issubclass(part, BaseModel):
            models.append(part)
        parts += get_args(part)
    return models


def page() -> str:
    """Return the page."""
    every = [r for file in (*FILES, *BESIDE) if file.record for r in reachable(file.record)]
    parts = [r for r in dict.fromkeys(every)]
    return "\n\n".join(
        [
            "# Files of a run folder",
            "`advnorm train` writes a run folder, and other commands add to it. Text is "
            "UTF-8; numbers that are not finite are the texts `NaN`, `Infinity` and "
            "`-Infinity`. A reader needs no advnorm: [examples/read_run.py]"
            "(../files/examples/read_run.py.md) has only `json`. What may be removed: "
            "[how to train](../how-to/training.md#the-run-folder).",
            _table(FILES),
            "`KEY` is the condition, the norm and the radius, such as "
            "`pgd-50_linf_0.1`; `@BRANCH` and `~DATA` follow where there is a branch or "
            "another data set.",
            "## Files beside run folders",
            _table(BESIDE),
            *(_record(record) for record in parts),
        ]
    )


def _table(rows: tuple[File, ...]) -> str:
    head = "| file | what it holds | record | schema |\n|---|---|---|---|"
    lines = []
    for file in rows:
        name = file.record.__name__ if file.record else ""
        link = f"[{name}](#{slug(name)})" if name else "–"
        of = f"[JSON schema](schemas/{name}.json)" if name else "–"
        lines.append(f"| `{file.path}` | {file.text} | {link} | {of} |")
    return "\n".join([head, *lines])


def _record(record: type[BaseModel]) -> str:
    """Return the section of one record."""
    docs = field_docs(record)
    rows = [
        f"| `{name}` | {_linked(field)} | {default_text(field)} "
        f"| {one_line(docs.get(name, ''))} |"
        for name, field in record.model_fields.items()
    ]
    head = "| field | type | default | meaning |\n|---|---|---|---|"
    text = markdown((record.__doc__ or "").partition("\n\n")[0])
    return f"## {record.__name__}\n\n{' '.join(text.split())}\n\n" + "\n".join(
        [head, *rows]
    )


def _linked(field: Any) -> str:
    """Return the type of a field, with links to the records in it."""
    text = type_text(field.annotation)
    for inner in _inner(field):
        name = inner.__name__
        text = text.replace(f"`{name}`", f"[{name}](#{slug(name)})")
    return text
