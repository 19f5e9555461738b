# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
.PHONY: demo test test-slow lint bench docs docs-notebooks peers clean

.venv/ready: pyproject.toml constraints.txt
	@echo "Installing into .venv: some minutes, about 2 GB. Nothing else on this machine is touched."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: .venv/ready
	$(BIN)/toosure demo --workers 2

test: .venv/ready lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup -q

test-slow: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup -q -m slow

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Those that need no data; the others say at their top what to give them.
BENCHMARKS := evaluate losses metrics optim posthoc

bench: .venv/ready
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done

# The site: build/site/index.html opens from disk. Warnings are errors, and so are spelling mistakes.
# `make docs-notebooks` also executes the notebooks, each in under a minute.
.venv/docs-ready: .venv/ready
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

SPHINX := OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -j auto -c docs -d build/doctrees

docs: .venv/docs-ready
	$(BIN)/codespell
	$(SPHINX) . build/site
	@echo "open build/site/index.html"

docs-notebooks: .venv/docs-ready
	$(SPHINX)-notebooks -t notebooks . build/site
	@echo "open build/site/index.html"

# Other people's libraries to compare with, in an environment of their own. Those that would pull
# torchvision (curvlinops through backpack, torch-uncertainty) come without their dependencies.
.peers/ready: constraints.txt
	@test -x .peers/bin/python || $(PYTHON) -m venv .peers
	.peers/bin/pip install --quiet -c constraints.txt torch numpy scipy scikit-learn torchmetrics \
		netcal relplot uncertainty-calibration MAPIE PyHessian pytorch-optimizer
	.peers/bin/pip install --quiet --no-deps -c constraints.txt \
		curvlinops-for-pytorch backpack-for-pytorch einops einconv unfoldNd torch-uncertainty
	@touch $@

peers: .peers/ready

clean:
	rm -rf .venv .peers build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
