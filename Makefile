# `make verify` shows the product at work, `make test` is the everyday test run, `make check`
# is CI.
# All of them need only Python 3.11 or newer: make PYTHON=python3.12 verify
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
RUN := $(BIN)/syncverify run
PYTEST := $(BIN)/pytest -n auto --dist worksteal
# Some machines set it: each of a thousand processes would compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: verify first test long lint type fmt check bench peers findings releases soak conformance gpu timemachine mutation catalogue clean

verify: first
	$(RUN) ddp --backend sim --ranks 4 --examples 200 --seed 0
	$(RUN) synchronizer --backend gloo --ranks 4 --examples 25 --seed 0
	$(RUN) ddp --backend gloo --ranks 4 --examples 25 --seed 0
	@echo
	@echo "next, verify yours:  $(RUN) mypackage/sync.py:MySynchronizer"
	@echo "or, for the command by its name alone:  . .venv/bin/activate && syncverify --help"

# What a reader of the README sees first; CI plays fewer scenarios of it.
first: EXAMPLES := 200
first: $(INSTALLED)
	$(RUN) synchronizer --backend sim --ranks 4 --examples $(EXAMPLES) --seed 0 --jobs 2

# Two and a half minutes on two cores.
test: $(INSTALLED)
	$(PYTEST) -m "not long"

# The other tests: searches for planted defects, processes, examples. ARGS=--tenth=TEXT plays
# the tenth of them that a text chooses. Many wait for processes, so there are more workers than cores.
long: $(INSTALLED)
	$(PYTEST) -n $$(($$(getconf _NPROCESSORS_ONLN) * 3 / 2)) -m long $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m studies.prose

type: $(INSTALLED)
	$(BIN)/mypy

fmt: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The quick tests run under coverage, which doubles their time.
check: lint type coverage long

# d9d's metadata asks for a newer torch than ours, though its synchronizer runs on it.
bench: $(INSTALLED)
	$(BIN)/pip install -qq --disable-pip-version-check --no-deps d9d
	$(BIN)/python -m studies.benchmarks.synchronizer --json bench.json
	$(BIN)/python -m studies.benchmarks.harness --json bench-harness.json

# Other projects' synchronizers; what they are known for is in docs/findings.md. Each peer is
# the newest of studies/results/releases.jsonl, in an environment with the newest torch, which
# d9d needs; megatron-core needs Python 3.12: make peers PYTHON=python3.12
PEERS := build/peers/bin
PEERS_INSTALLED := build/peers/.installed
peers: $(PEERS_INSTALLED)
	OMP_NUM_THREADS=1 $(PEERS)/python -m studies.peers --store

# Compares each sentence of the pages about releases with the package index;
# ARGS=--update stores what is newest and fills it in.
releases: $(INSTALLED)
	$(BIN)/python -m studies.releases $(ARGS)

# The scripts of findings, with the Python of the environment; docs/findings.md gets their table.
findings: $(INSTALLED)
	$(BIN)/python -m studies.findings

# Hours of two cores for 96,000 scenarios; goes on where it was cut off. After a change of the
# harness, delete the file first. Twins are played by
# `python -m studies.pages.bank_figures --twin-examples 1000`.
soak: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.pages.soak studies/results/soak.jsonl \
	  --cluster local:2 synchronizer=12000 ddp=20000 replicate=16000 fsdp2=4000 hsdp=3000 replicate-fsdp=3000 \
	  syncverify.subjects.bugbank.bases.view_buckets:ViewBuckets=18000
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.pages.soak studies/results/soak.jsonl \
	  --backend gloo --cluster local:1 synchronizer=5000 ddp=5000
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.pages.soak studies/results/soak.jsonl \
	  --backend fake --cluster local:2 synchronizer=10000

# Features that each synchronizer takes, in the environment of `make peers`: plays the columns
# that are not stored with these releases, a minute or two each; writes docs/conformance.md.
conformance: $(PEERS_INSTALLED)
	OMP_NUM_THREADS=1 $(PEERS)/python -m studies.pages.conformance

# The checks that need a GPU, ten minutes on one; writes docs/gpu.md. As far as possible on a CPU.
gpu: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.gpu --markdown docs/gpu.md

# Real defects of real releases: downloads and plays all pairs (30 minutes of plays in sum, two at a time), and writes
# docs/timemachine.md; goes on where it was cut off that day. ARGS="--only NAME" plays one pair, ARGS=""
# what is not stored yet.
timemachine: ARGS ?= --again --jobs 2
timemachine: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.timemachine $(ARGS)

# Mistakes put into the harness, one at a time; see docs/how-we-know.md. mutmut leaves a folder of
# the name of one of our packages, so it works on links. Goes on where it was cut off.
mutation: $(INSTALLED)
	$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[mutation]'
	mkdir -p build/mutation
	ln -sfn $(addprefix ../../,pyproject.toml studies syncverify tests) build/mutation/
	cd build/mutation && OMP_NUM_THREADS=1 PYTHONHASHSEED=0 ../../$(BIN)/mutmut run --max-children 1
	$(BIN)/python -m studies.mutants.general build/mutation

# Figures of new entries of the bug bank, all pages that follow from the code and from stored
# results, then those whose commands are played.
catalogue: $(INSTALLED)
	$(BIN)/python -m studies.pages.bank_figures
	$(BIN)/python -m studies.pages
	$(BIN)/python -m tests.pages
	$(BIN)/python -m studies.pages.gallery
	$(BIN)/python -m studies.pages.followed docs/index.md docs/tutorial.md docs/reading-a-race.md docs/any-program.md

# Branch coverage of the three packages by the quick tests, at least 92.5 %;
# make coverage ARGS=tests/syncverify/sim measures a part.
.PHONY: coverage versions changelog release
coverage: $(INSTALLED)
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -n auto --dist worksteal $(or $(ARGS),-m "not long")
	$(BIN)/coverage combine -q
	$(BIN)/coverage report $(if $(ARGS),,--fail-under=92.5)

# All tests on each pair of Python and torch of pyproject.toml whose Python is installed; writes
# docs/versions.md. Five environments of 5 GB: TESTS=quick plays those of `make test` alone.
versions: $(INSTALLED)
	$(BIN)/nox --session tests -- $(TESTS)

changelog: $(INSTALLED)
	$(BIN)/towncrier build --draft --version next

# A commit and a tag, nothing is uploaded; see docs/releasing.md.
release: $(INSTALLED)
	$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[release]'
	PATH="$(CURDIR)/$(BIN):$$PATH" .ci/release "$(VERSION)"

clean:
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(PEERS_INSTALLED): pyproject.toml constraints.txt studies/results/releases.jsonl | $(INSTALLED)
	@$(PYTHON) -m venv --clear build/peers
	@$(BIN)/python -m studies.releases.requirements \
	  $$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])') > build/peers/peers.txt
	@sed -E '/^(torch|setuptools)==/d' constraints.txt > build/peers/constraints.txt
	@echo "installing into build/peers; minutes, and 5 GB where torch is a CUDA build"
	@DS_BUILD_OPS=0 $(PEERS)/pip install -qq --disable-pip-version-check -r build/peers/peers.txt \
	  -c build/peers/constraints.txt -e . packaging
	@touch $@

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "error: syncverify needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || :); try: make PYTHON=python3.12" >&2; exit 1; }
	@echo "installing into .venv; a minute or so, and only when the dependencies change"
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/pip install --no-compile -qq --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@
