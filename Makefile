# make demo       from nothing to a served translation, in a few minutes on two cores
# make test       style, types, import rules and the fast tests
# make coverage   the same, and a table of the lines that no test runs
# make package    the wheel and the sdist, used outside of the repository
# make test-slow  the tests that take minutes
# make bench      the short form of every benchmark, in about three minutes
# make docs       the documentation site, into site/
# make notebook   run examples/quickstart.ipynb and keep its outputs
# make lint       style, types and import rules only
# make format     rewrite the files in the project's style
# make clean      remove the environment and everything that was built

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin

# The demo's modules are compiled at their first import, because most of TensorFlow's
# 10,000 files are never imported.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# Python keeps what it compiles, even where the environment forbids it, as container
# images do: every process would spend 8 seconds on TensorFlow's modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test coverage package test-slow bench docs notebook lint style format clean

demo: $(VENV)/.installed
	@PATH="$(abspath $(BIN)):$$PATH" bash examples/demo.sh

# Two processes, each with whole files: what a file prepares is prepared once.
PYTEST = $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
test: style
	$(PYTEST)

coverage: style
	$(PYTEST) --cov

package: $(VENV)/.installed-test
	.ci/package $(BIN)/python

test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m slow

# docs/results.md has numbers, and the long forms of some.
BENCH = $(BIN)/python benchmarks
bench: $(VENV)/.installed
	$(BENCH)/train.py --steps 3
	$(BENCH)/train.py --steps 3 --dtype bfloat16
	$(BENCH)/decode.py --steps 1
	$(BENCH)/decode.py --steps 1 --dtype bfloat16
	$(BENCH)/decode.py --steps 1 --batch 1
	$(BENCH)/train.py --steps 3 --config tiny --replicas 2
	$(BENCH)/sentence_length.py --config tiny --lengths 16 256 --steps 1
	$(BENCH)/train.py --config tiny --memory 1024 2048
	$(BENCH)/datagen.py
	$(BENCH)/startup.py

docs: $(VENV)/.installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "The documentation is in site/index.html"

notebook: $(VENV)/.installed-test
	$(BIN)/python .ci/notebook

lint: style
	$(BIN)/python -m pytest tests/repository/test_imports.py

# The import rules are among the tests.
style: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist runs site t2t_keras.egg-info .coverage* .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp files mean that the environment is complete for these requirements.
$(VENV)/.installed: setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "Installing TensorFlow and the package into $(VENV) ..."
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(INSTALL) --editable ".[test]"
	@# The tests start many processes, which would compile the same modules side by side.
	@# A few packages contain templates that cannot be compiled.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@
