# Two commands are all a newcomer needs: `make demo` and `make test`; `make docs` builds the site.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint type check slow docs clean

demo: $(STAMP)
	$(BIN)/advnorm demo

test: lint type check

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(STAMP)
	$(BIN)/mypy

# Two processes of one thread each: tests are many and small.
check: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 -m "not slow or ci"

slow: $(STAMP)
	$(BIN)/pytest -q -m slow

# Offline: docs/_build/html/index.html opens from the disk.
docs: $(STAMP)
	test ! -f docs/tools/run_tutorials.py || $(BIN)/python docs/tools/run_tutorials.py
	$(BIN)/python docs/tools/build_site.py

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info docs/_build docs/tutorials/generated
