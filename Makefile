# Every target makes .venv when it is needed; nothing else has to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard native/* native/*/*)

# Python keeps the modules it compiles. Tests import a quarter of those that pip would compile in advance, and start many
# processes; if the environment forbids writing bytecode, each of them would compile again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: test test-fast test-slow test-engines test-faults test-dist test-lowest test-generic test-sanitize test-attack test-statistics test-mutants test-arm test-kubernetes lint docs wheel reproduce bench bench-quick cameras clean

# All tests: those within 100 s on two cores, then those marked slow. The last line of each part has its time.
test: test-fast test-slow
test-fast: MARKS = not slow
test-slow: MARKS = slow
test-fast test-slow: $(VENV)/ready
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "$(MARKS) and not engines and not statistics"

# Codes in FAISS, usearch, LanceDB, DuckDB, Qdrant and PostgreSQL with pgvector: the same ids and mismatches as ours.
test-engines: $(VENV)/engines
	$(BIN)/python -m pytest -m engines tests/engines

# Writers of a durable index killed before every system call that changes a file, 1,000 losses of power, 500 interrupts,
# and many writers and readers at once; parts of a cluster killed ten times. The suite runs a sample of each.
test-faults: $(VENV)/ready
	$(BIN)/python tests/faults/crash.py kill
	$(BIN)/python tests/faults/crash.py power --states 1000
	$(BIN)/python tests/faults/interrupt.py --rounds 500
	$(BIN)/python tests/faults/crowd.py --seconds 60
	$(BIN)/python tests/faults/cluster.py --rounds 10

# The tests marked core, which need no extra, in a fresh environment: $(call core-tests,its name,what pip installs)
define core-tests
	rm -rf $(VENV)/$(1)
	$(PYTHON) -m venv $(VENV)/$(1)
	$(VENV)/$(1)/bin/pip install --quiet pytest hypothesis mypy $(2)
	$(VENV)/$(1)/bin/python -m pytest -q -m core tests
endef

# The sdist and the wheel made of it, each installed without the other.
test-dist: $(VENV)/ready
	rm -rf dist
	$(BIN)/pip install --quiet build
	$(BIN)/python -m build --outdir dist .
	test $$(stat -c %s dist/*.whl) -lt 8000000
	$(call core-tests,from-sdist,dist/*.tar.gz)
	$(call core-tests,from-wheel,dist/*.whl)

# Exactly the lowest version of every dependency that pyproject.toml permits, with pytest and click of the same age.
LOWEST = $(shell $(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'])")
test-lowest:
	$(call core-tests,lowest,. pytest==8 click==8.2.1 $(subst >=,==,$(LOWEST)))

# Only the portable path, as built for a processor without a faster path by a compiler without vector types.
test-generic:
	$(call core-tests,generic,. --config-settings cmake.define.TOPSIGN_GENERIC=ON --config-settings cmake.define.TOPSIGN_PLAIN_ARRAYS=ON)
	$(VENV)/generic/bin/python -c "import topsign; assert topsign.kernels.available() == ['portable']"

# Hostile bytes in every kernel and reader that accepts codes, under sanitizers; the test suite runs a sample.
test-sanitize: $(VENV)/ready
	$(BIN)/python tests/faults/sanitize.py --cases 20000 --doors 20000

# Damaged and crafted files in every reader for ten minutes; counts go into benchmarks/results/attack.json.
test-attack: $(VENV)/ready
	$(BIN)/python tests/faults/attack.py --seconds 600 --results benchmarks/results/attack.json

# Coverage of every interval; false-alarm rates of 60 calibrations for each of eight laws of signals and three families.
test-statistics: $(VENV)/ready
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal -m statistics tests/statistics

# Mutants of the source, each against the test files that should notice it; those that survive are listed.
test-mutants: $(VENV)/ready
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/mutants.py

# The NEON kernels in Python on an emulated ARM processor, and index files exchanged with it; on Debian, as root.
test-arm: $(VENV)/ready
	tests/arm/run.sh $(BIN)/python -m "not slow and not engines and not statistics"

# The file for Kubernetes against the schema of the Dask operator, which its wheel contains.
test-kubernetes: $(VENV)/ready
	$(BIN)/pip install --quiet jsonschema pyyaml
	$(BIN)/pip download --quiet --no-deps --dest build/kubernetes dask-kubernetes==2026.3.0
	$(BIN)/python tests/check_kubernetes.py build/kubernetes/dask_kubernetes-2026.3.0-py3-none-any.whl

# Pages in build/docs/index.html; a warning is an error.
docs: $(VENV)/docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'native/*.h' 'native/*.cpp')

# One wheel for every Python 3 of this platform, tested in a fresh environment.
wheel: $(VENV)/ready
	rm -rf dist $(VENV)/from-wheel
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv $(VENV)/from-wheel
	$(VENV)/from-wheel/bin/pip install --quiet dist/topsign-*.whl
	cd $(VENV)/from-wheel && bin/python -c "import topsign; print('installed from the wheel:', topsign.kernels.info())"
	@ls -l dist

# Every figure and the table of the paper, on a page: report/index.html.
reproduce: $(VENV)/plot
	$(BIN)/topsign reproduce --output report

# Every benchmark that this machine can run, and the pages written from the numbers; CACHE=folder of sentence vectors,
# RESIDUALS=file.npz of photographs.
BENCH = $(if $(CACHE),--cache $(CACHE)) $(if $(RESIDUALS),--residuals $(RESIDUALS))
bench: $(VENV)/bench
	failed=0; $(BIN)/python benchmarks/run.py $(BENCH) || failed=1; \
	$(BIN)/python benchmarks/page.py --charts && exit $$failed

# Enrolment, calibration and identification of the cameras of a folder of real photographs, as VISION and Dresden are
# laid out: make cameras DATA=folder, with SIZE=512 if the photographs have fewer than 1024 pixels a side.
cameras: $(VENV)/bench
	$(BIN)/python benchmarks/camera_photographs.py --data "$(or $(DATA),$(error set DATA=folder))" $(if $(SIZE),--size $(SIZE)) --json build/cameras.json

# The same at small sizes, into build/bench-quick: to see that it runs, not to publish.
bench-quick: $(VENV)/bench
	$(BIN)/python benchmarks/run.py --quick $(BENCH)
	mkdir -p build/bench-quick && cp -r README.md docs build/bench-quick
	$(BIN)/python benchmarks/page.py --charts --results build/bench-quick --out build/bench-quick

$(VENV)/bench: $(VENV)/ready
	$(BIN)/pip install --quiet --editable ".[bench]"
	touch $@

$(VENV)/ready: pyproject.toml $(NATIVE)
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --upgrade pip
	$(BIN)/pip install --quiet --no-compile torch==2.13.0  # the exact version first: a bare name may fetch several gigabytes
	$(BIN)/pip install --quiet --no-compile --editable ".[dev]"
	touch $@

# Without the packages of the tests, of which torch is the largest.
$(VENV)/plot: pyproject.toml $(NATIVE)
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable ".[plot]"
	touch $@

$(VENV)/docs: $(VENV)/ready
	$(BIN)/pip install --quiet --editable ".[docs]"
	touch $@

$(VENV)/engines: $(VENV)/ready
	$(BIN)/pip install --quiet --editable ".[engines]"
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
