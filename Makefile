# Every target makes .venv when it is needed; nothing else has to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard native/*)

.PHONY: test test-faults lint wheel reproduce clean

test: $(VENV)/ready
	$(BIN)/python -m pytest

# Writers of a durable index killed at 200 random instants (the suite does 20), parts of a cluster ten times (once).
test-faults: $(VENV)/ready
	$(BIN)/python tests/faults/kill.py --rounds 200
	$(BIN)/python tests/faults/cluster.py --rounds 10

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# One wheel for every Python 3 of this platform, shown by an install from the wheel alone.
wheel: $(VENV)/ready
	rm -rf dist $(VENV)/from-wheel
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv $(VENV)/from-wheel
	$(VENV)/from-wheel/bin/pip install --quiet dist/topsign-*.whl
	cd $(VENV)/from-wheel && bin/python -c "import topsign; print('installed from the wheel:', topsign.kernels.info())"
	@ls -l dist

reproduce: $(VENV)/ready
	$(BIN)/python examples/curve.py

$(VENV)/ready: pyproject.toml $(NATIVE)
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet torch==2.13.0  # the exact version first: a bare name may fetch several gigabytes
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
