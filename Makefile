# Everything a person runs here. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TEST_WORKERS ?= 3
STORY_WORKERS ?= 3
# Folders with such tests: whoever collects the others too, in each worker, waits for that.
STORIES = $(sort $(dir $(shell grep -rlE 'mark\.(story|alone)\b' tests --include='test_*.py' | grep -vE '^tests/(bed|lab)/')))
# For tests with real processes; CI: --reruns 1
STORY_OPTIONS ?=
# Which of the tests with real processes run: core, turn (as CI) or all (docs/testing.md).
PRIMUS_PROOF ?= core
export PRIMUS_PROOF
# CI: --no-compile. Elsewhere Python may be forbidden to keep what it compiles, and each command would wait for it anew.
PIP_OPTIONS ?=
# Images often forbid Python to keep what it compiled: each of a thousand commands of the stories would compile us anew.
unexport PYTHONDONTWRITEBYTECODE
STAMP := $(VENV)/.ready

.PHONY: demo setup test check golden bench bench-peers campaign lock clean help bed-build bed-verify bed-up bed-down bed-test bed-golden lab-build lab-up lab-down lab-test bootstrap-test bootstrap-kubespray
.PHONY: lint proof

setup: $(STAMP) ## The virtual environment in .venv, where it is missing or old

demo: $(STAMP) ## Train on this machine, lose a node, resume, compare with an unfailed run
	@$(BIN)/primus demo

test: lint ## Unit tests, properties, golden manifests, the core of the stories (PRIMUS_PROOF=turn, all: more), types
	@mkdir -p build; code=0; \
	  .ci/phase 'types, beside unit' $(BIN)/pyright --warnings >build/pyright.log 2>&1 & pyright=$$!; \
	  .ci/phase unit $(BIN)/python -m pytest -q -m 'not story' -n $(TEST_WORKERS) --dist worksteal || code=1; \
	  types=0; wait $$pyright || types=$$?; \
	  .ci/phase stories $(BIN)/python -m pytest -q -m 'story and not alone' -n $(STORY_WORKERS) --dist loadfile $(STORIES) \
	    $(STORY_OPTIONS) || code=1; \
	  .ci/phase alone $(BIN)/python -m pytest -q -m 'story and alone' $(STORY_OPTIONS) $(STORIES) || code=1; \
	  cat build/pyright.log; echo "pyright ended with $$types"; \
	  [ "$$code$$types" = 00 ] # all are told, whichever fails; the last stories one by one

lint: $(STAMP)
	@.ci/phase static $(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@.ci/phase static $(BIN)/ruff check --quiet .
	@.ci/phase static $(BIN)/lint-imports --no-cache

check: lint ## Format, lint, import rules, types, documents
	@$(BIN)/pyright --warnings
	@$(BIN)/python -m pytest -q tests/house/test_documents.py

# Not by the variable for make: with it `make -n` would run all of this.
proof: $(STAMP) ## Everything: all tests with all that rotates, the campaign of 200, bed and lab (root; docs/testing.md)
	@PRIMUS_PROOF=all PRIMUS_PROCESS_RERUNS=1 make --no-print-directory test STORY_OPTIONS='--reruns 1'; test=$$?; \
	  make --no-print-directory campaign; campaign=$$?; \
	  PRIMUS_PROOF=all .ci/bed; bed=$$?; \
	  PRIMUS_PROOF=all .ci/lab; lab=$$?; \
	  echo "make test ended with $$test, make campaign with $$campaign, .ci/bed with $$bed, .ci/lab with $$lab"; \
	  [ "$$test$$campaign$$bed$$lab" = 0000 ] # each is told to its end, whichever fails

golden: $(STAMP) ## Rewrite the golden manifests and generated references (look at the diff before you commit)
	@PRIMUS_GOLDEN=1 $(BIN)/python -m pytest -q tests/golden/test_manifests.py tests/golden/test_kubespray_files.py tests/unit/workflows/platform/test_workspace.py tests/unit/profiles/test_fields.py tests/unit/deployments/test_words.py tests/unit/decisions/diagnosis/rules/test_rules_page.py tests/unit/workflows/platform/test_health_alerts.py tests/house/test_architecture.py tests/house/test_seconds_page.py

calibration: $(STAMP) ## Said confidence beside how often it is right, by kind of answer, with the curve that fits unseen logs
	@$(BIN)/python -m tests.support.cases.calibration

bench: $(STAMP) ## Measure, each figure beside a limit measured in the same run
	@$(BIN)/python -m tests.benchmarks

bench-peers: $(STAMP) ## The same faults for torchrun, ft_launcher, DLRover, torchft and us (own environment, 6 GB; docs/peers.md)
	@$(BIN)/python -m tests.peers $(PEERS)

campaign: $(STAMP) ## Cause 200 faults over many runs, some at once or amid a recovery; nothing may be wrong afterwards
	@$(BIN)/python -m tests.campaign $(CAMPAIGN)

bed-build: $(STAMP) ## Unpack what is prebuilt of the bed, compile the rest (all of it about a quarter of an hour)
	@$(BIN)/python -m tests.bed build --all

bed-verify: $(STAMP) ## Compile one family anew: is it what tests/bed/modules/PREBUILT.sha256 says? (FAMILY=dns)
	@$(BIN)/python -m tests.bed verify $(FAMILY)

bed-up: $(STAMP) ## Start a real control plane with real nodes on this machine (the first time compiles it; docs/bed.md)
	@.ci/phase 'bed up' $(BIN)/python -m tests.bed up $(BED)

bed-down: $(STAMP) ## Stop it; nothing is left behind
	@.ci/phase 'bed down' $(BIN)/python -m tests.bed down $(DOWN)

bed-test: $(STAMP) ## The core of the tests against it (PRIMUS_PROOF=all: all): starts one, hurts it, takes it down
	@mkdir -p build; nice -n 19 $(BIN)/python -m pytest -q tests/bed -m bedless >build/bedless.log 2>&1 & bedless=$$!; \
	  .ci/phase 'bed test' $(BIN)/python -m pytest -q tests/bed -m 'not bedless'; code=$$?; \
	  wait $$bedless || code=1; cat build/bedless.log; exit $$code

bed-golden: $(STAMP) ## Record the trees of conformance cases that changed as Argo makes them (PRIMUS_PROOF=all: of all)
	@PRIMUS_GOLDEN=1 $(BIN)/python -m pytest -q tests/bed/test_conformance.py

bootstrap-kubespray: $(STAMP) ## A site's own Kubespray makes the lab's hosts a cluster (PRIMUS_KUBESPRAY=checkout, PRIMUS_KUBESPRAY_COMMIT; root; docs/bootstrap.md)
	@[ -n "$$PRIMUS_KUBESPRAY" ] && [ -n "$$PRIMUS_KUBESPRAY_COMMIT" ] \
	  || { echo "skipped: set PRIMUS_KUBESPRAY to a checkout of Kubespray and PRIMUS_KUBESPRAY_COMMIT to its commit"; exit 0; }; \
	  export PRIMUS_PROOF=all; $(BIN)/python -m pytest -q -s tests/hosts/test_kubespray.py -k own_copy \
	  && $(BIN)/python -m pytest -q -s tests/lab/test_bootstrap_kubespray.py

bootstrap-test: $(STAMP) ## Bootstrap on real hosts of this machine: builds, starts, tests, takes down with a check (root; docs/lab.md)
	@.ci/lab

lab-build: $(STAMP) ## What hosts need and is made once: root file system, kubeadm, CoreDNS, images
	@$(BIN)/python -m tests.lab build

lab-up: $(STAMP) ## Start real hosts on this machine: systemd, sshd, power that can be cut (LAB='--hosts 5')
	@.ci/phase 'lab up' $(BIN)/python -m tests.lab up $(LAB)

lab-down: $(STAMP) ## Switch them off; nothing is left behind
	@.ci/phase 'lab down' $(BIN)/python -m tests.lab down $(DOWN)

lab-test: $(STAMP) ## The core of the tests on them (PRIMUS_PROOF=all: all)
	@.ci/phase 'lab test' $(BIN)/python -m pytest -q tests/lab

lock: ## Write constraints.txt anew from the present environment
	@$(BIN)/python -m pip freeze --exclude-editable --exclude pip >constraints.txt

clean: ## Remove the virtual environment and caches
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist *.egg-info

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

# One environment for everything. Set up again only when what it is made from changed.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "primus-flows needs Python 3.11 or newer; say which: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "this Python has no venv module; install it first (Debian: apt-get install python3-venv)" >&2; exit 2; }
	@echo "setting up $(VENV) (about a minute, once)" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) -c constraints.txt -e '.[control,program,test]'
	@touch $@
