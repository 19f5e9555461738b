# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
.PHONY: demo test test-slow lint bench peers clean

.venv/ready: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: .venv/ready
	$(BIN)/python examples/demo.py

test: .venv/ready lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -q

test-slow: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -q -m slow

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf .venv .peers build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
