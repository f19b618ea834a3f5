# `make verify` shows the product at work, `make test` runs the tests, `make check` is CI.
# All of them need only Python 3.11 or newer: make PYTHON=python3.12 verify
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
RUN := $(BIN)/syncverify run

.PHONY: verify test lint type fmt check bench peers soak mutation catalogue clean

verify: $(INSTALLED)
	$(RUN) synchronizer --backend sim --ranks 4 --examples 200 --seed 0
	$(RUN) ddp --backend sim --ranks 4 --examples 200 --seed 0
	$(RUN) synchronizer --backend gloo --ranks 4 --examples 25 --seed 0
	$(RUN) ddp --backend gloo --ranks 4 --examples 25 --seed 0

test: $(INSTALLED)
	$(BIN)/pytest -n auto

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(INSTALLED)
	$(BIN)/mypy

fmt: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: lint type test

# d9d's metadata asks for a newer torch than ours, though its synchronizer runs on it.
bench: $(INSTALLED)
	$(BIN)/pip install -qq --disable-pip-version-check --no-deps d9d==0.24.0
	$(BIN)/python -m benchmarks.synchronizer --json bench.json
	$(BIN)/python -m benchmarks.harness --json bench-harness.json

# Other projects' synchronizers; what they are known for is in docs/findings.md.
peers: $(INSTALLED)
	DS_BUILD_OPS=0 $(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[peers]'
	$(BIN)/pip install -qq --disable-pip-version-check --no-deps d9d==0.24.0
	OMP_NUM_THREADS=1 $(BIN)/python -m peers --json peers.json

# Hours of two cores for 76,000 scenarios; goes on where it was cut off. After a change of the
# harness, delete the file first. Twins are played by `syncverify bank --twin-examples 1000`.
soak: $(INSTALLED)
	PYTHONPATH=.:tests/quality OMP_NUM_THREADS=1 $(BIN)/python tests/quality/soak.py docs/soak.jsonl \
	  --jobs 2 synchronizer=12000 ddp=20000 replicate=16000 fsdp2=4000 hsdp=3000 replicate-fsdp=3000 \
	  syncverify.bugbank.bases.view_buckets:ViewBuckets=18000

# Mistakes put into the harness, one at a time; see docs/mutants.md. mutmut leaves a folder of
# the name of one of our packages, so it works on links. Goes on where it was cut off.
mutation: $(INSTALLED)
	$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[mutation]'
	mkdir -p build/mutation
	ln -sfn $(addprefix ../../,pyproject.toml strategies synchronizer syncverify tests) build/mutation/
	cd build/mutation && OMP_NUM_THREADS=1 PYTHONHASHSEED=0 ../../$(BIN)/mutmut run --max-children 1
	$(BIN)/python tests/mutation/general_mutants.py build/mutation

catalogue: $(INSTALLED)
	PYTHONPATH=.:tests/quality $(BIN)/python tests/quality/property_catalogue.py
	PYTHONPATH=.:tests/quality $(BIN)/python tests/quality/feature_catalogue.py
	PYTHONPATH=.:tests/quality $(BIN)/python tests/quality/bank_page.py
	PYTHONPATH=.:tests/quality $(BIN)/python tests/quality/alarms_page.py

clean:
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "error: syncverify needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || :); try: make PYTHON=python3.12" >&2; exit 1; }
	@echo "installing into .venv; a minute or so, and only when the dependencies change"
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@
