# Two commands do everything: `make demo` and `make test`. Everything lives in .venv and .sero.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := train,alfworld,dashboard,embedded,dev
STAMP := $(VENV)/.installed-$(shell sha256sum pyproject.toml | cut -c1-12)
# One thread per process: spinning OpenMP threads cost more than they bring on small machines.
export OMP_NUM_THREADS ?= 1

.PHONY: demo setup check test format lint types imports unit parity-alfworld mutate audit chaos screenshots clean

demo: $(STAMP) ## set up, start all services, train the demo run and follow it
	@$(BIN)/sero demo

setup: $(STAMP) ## make the environment and install everything

$(STAMP): pyproject.toml
	@$(PYTHON) backend/doctor.py --before-install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing (once; two small C/C++ packages are compiled, about five minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	@rm -f $(VENV)/.installed-* && touch $@

check: $(STAMP) format lint types imports unit ## what must pass before each commit, under 60 s

format:
	$(BIN)/ruff format --check .

lint:
	$(BIN)/ruff check .
	$(BIN)/bandit -q -c pyproject.toml -r sero_core backend worker dashboard migrations 2>/dev/null

audit: $(STAMP) ## known vulnerabilities of what is installed; needs the advisory database on the network
	$(BIN)/pip-audit --skip-editable --progress-spinner off

types:
	$(BIN)/pyright

imports:
	$(BIN)/lint-imports

unit:
	$(BIN)/pytest -q -n 2 -m "not slow" tests/unit tests/contracts tests/golden tests/traps

test: $(STAMP) format lint types imports ## everything; needs no service, starts its own
	$(BIN)/pytest -n 2 --dist loadgroup tests/unit tests/contracts tests/golden tests/traps tests/service
	$(BIN)/pytest tests/e2e tests/chaos tests/browser

# Games: $$SERO_DATA, else the official release, unpacked from an archive beside the checkout or downloaded.
ALFWORLD_ARCHIVE ?= $(wildcard ../shared/data/alfworld_json_2.1.1_*.tar.xz)
.sero/alfworld/json_2.1.1: | $(STAMP)
	$(BIN)/sero data alfworld --root .sero/alfworld $(if $(ALFWORLD_ARCHIVE),--from $(ALFWORLD_ARCHIVE))

parity-alfworld: $(STAMP) $(if $(SERO_DATA),,.sero/alfworld/json_2.1.1) ## native against stock engine on every game, resumable
	@mkdir -p .sero
	$(BIN)/python -m sero_core.envs.alfworld.parity $(or $(SERO_DATA),.sero/alfworld) \
		--workers $(shell nproc) --resume .sero/parity-alfworld.jsonl

mutate: $(STAMP) ## put each trap of docs/correctness.md back and see that its test fails
	$(BIN)/python scripts/mutate.py

screenshots: $(STAMP) ## pictures of every page of the dashboard that runs now
	$(BIN)/python scripts/screenshots.py

clean: ## remove the environment and all local data
	rm -rf $(VENV) .sero
