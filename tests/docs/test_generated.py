"""The pages that are made of the code name everything that there is, with its meaning."""

import inspect
import json
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
from page_blocks import ROOT

sys.path.insert(0, str(ROOT / "docs" / "tools"))

import api_pages
import cli_pages
import name_pages
import recipe_page
import record_pages
from docstrings import field_docs

import advnorm
from advnorm.listing import KINDS
from advnorm.recipe.keys import keys
from advnorm.records import Record
from advnorm.registry import Registry

MODULES = ["advnorm", *api_pages.PACKAGES]


def rows(page):
    """Return the cells of every row of every table of a page, heads left out."""
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    split = (re.split(r"(?<!\\)\|", line)[1:-1] for line in lines)
    return {
        cells[0].strip().strip("`"): [cell.strip() for cell in cells] for cells in split
    }


def test_every_key_of_a_recipe_has_values_default_unit_and_meaning():
    documented = rows(recipe_page.page())
    sections = {key.rpartition(".")[0] for key in keys()}
    assert {*keys()} - sections <= set(documented)
    empty = {key: cells for key, cells in documented.items() if not all(cells)}
    assert not empty and all(len(cells) == 5 for cells in documented.values())


def test_ranges_defaults_and_units_are_those_of_the_models():
    documented = rows(recipe_page.page())
    assert documented["attack.steps"][1:3] == ["whole number, at least 1", "`10`"]
    assert documented["epochs"][3] == documented["optimizer.schedule"][3].replace(
        "–", "epochs"
    )
    assert documented["threat.eps"][1:4] == ["number, above 0", "`0.1`", "pixel values"]
    assert (
        documented["norm.name"][2] == "`batch`"
        and documented["checkpoint_seconds"][3] == "seconds"
    )
    assert "`pgd` or `ibp`" in documented["validation.robust"][1]


def test_every_field_of_every_record_has_a_meaning():
    silent = {
        f"{record.__name__}.{field}"
        for file in (*record_pages.FILES, *record_pages.BESIDE)
        if file.record
        for record in record_pages.reachable(file.record)
        for field in record.model_fields
        if not field_docs(record).get(field)
    }
    assert not silent


def test_a_field_without_a_docstring_is_seen():
    class Silent(Record):
        number: int

    assert "number" not in field_docs(Silent)


@pytest.mark.parametrize("file", [f for f in record_pages.FILES if f.record], ids=str)
def test_a_schema_describes_every_field(file):
    name = file.record.__name__
    schema = json.loads(record_pages.files()[f"schemas/{name}.json"])
    assert set(schema["properties"]) == set(file.record.model_fields)
    assert all(field["description"] for field in schema["properties"].values())
    assert schema["additionalProperties"] is False


def test_kept_records_are_those_of_the_schema():
    text = record_pages.files()["schemas/Reproduction.json"]
    described = set(json.loads(text)["properties"])
    paths = [*(ROOT / "docs" / "results").glob("*/*-smoke.json")]
    paths += [*(ROOT / "docs" / "results").glob("*/*-reduced.json")][:5]
    kept = [json.loads(path.read_text()) for path in paths]
    assert kept and all(set(record) - {"told"} <= described for record in kept)


@pytest.mark.parametrize("name", cli_pages.commands())
def test_a_command_page_has_every_option_and_an_example(name):
    command = cli_pages.commands()[name]
    page = cli_pages.page(name, command)
    for parameter in command.params:
        assert parameter.help and parameter.help.rstrip(".") in page.replace("\\|", "|")
        if parameter.opts[0].startswith("-"):
            assert all(f"`{flag}" in page for flag in parameter.opts)
        else:
            assert f"| `{cli_pages._usage(parameter).strip('[]')}`" in page
    assert f"## Example\n\n```sh\nadvnorm {name}" in page


def test_every_command_is_listed():
    index = cli_pages.pages()["index"]
    assert all(f"[`advnorm {name}`]" in index for name in cli_pages.commands())
    assert {"train", "data get", "list"} <= set(cli_pages.commands())


def test_every_name_of_every_registry_has_a_meaning():
    page = name_pages.page()
    for kind, registry in KINDS.items():
        section = page.partition(f"## {name_pages.TITLES[kind][0]}\n")[2].partition(
            "\n## "
        )[0]
        documented = rows(section)
        assert set(documented) == set(registry), kind
        assert all(cells[1] for cells in documented.values()), kind


def test_no_registry_is_left_out():
    listed = {id(registry) for registry in KINDS.values()}
    for package in api_pages.PACKAGES:
        module = import_module(package)
        for name in vars(module):
            thing = getattr(module, name)
            if isinstance(thing, Registry) and thing.kind not in (
                "package",
                "table or figure",
            ):
                assert id(thing) in listed, f"{package}.{name}"


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_place_and_a_docstring(module):
    parent, places = import_module(module), api_pages.places()
    for name in api_pages.public_names(parent):
        thing = getattr(parent, name)
        assert id(thing) in places, f"{module}.{name} is on no page"
        if inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing):
            assert inspect.getdoc(thing), f"{module}.{name} has no docstring"
        else:
            path, _, last = places[id(thing)].rpartition(".")
            assert api_pages.data_doc(path, last), f"{module}.{name} has no docstring"


def test_the_front_door_is_documented_under_its_own_names():
    page = api_pages.pages()["advnorm"]
    for name in advnorm.__all__:
        entry = rf"(auto\w+:: |:mod:`)advnorm\.{name}\b"
        assert re.search(entry, page), name


def test_pages_of_the_api_name_what_they_document():
    pages = api_pages.pages()
    for module, names in api_pages.documented().items():
        for name in names:
            entries = f":: {module}.{name}\n", f"py:data:: {name}\n"
            assert any(entry in pages[module] for entry in entries), f"{module}.{name}"
    assert Path(api_pages.__file__).is_relative_to(ROOT)
