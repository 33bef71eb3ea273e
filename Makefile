# The compendium's commands. `make help` lists them; each prepares what it needs, without root.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --constraint env/constraints.txt
# pip compiles one file after another: more than half of its time. Packages' own tests, and plotly, which only HTA imports, are a third.
COMPILE := @$(BIN)/python -m compileall -q -j 0 -x '/(tests|plotly)/' $(VENV)/lib hpc_utils companions >/dev/null || true
ANNOUNCE := @echo "Installing into $(VENV) (about a minute; the CUDA build of torch on Linux is some GB) ..."
INPUTS := pyproject.toml env/constraints.txt
TESTS ?=
# Four at a time, as many of them wait for others; a file's tests in one process: tests/parallel.py. Named files are run
# one after another.
SHARED := $(if $(findstring .py,$(TESTS)),,-n 4 --dist loadfile --no-loadscope-reorder)
# Of results, which are many, and documents, the hook of .pre-commit-config.yaml looks at those that are committed. Digests are no secrets.
SECRETS := detect-secrets-hook --no-verify --exclude-secrets s3cret \
	--disable-plugin HexHighEntropyString --disable-plugin Base64HighEntropyString \
	--disable-filter detect_secrets.filters.heuristic.is_indirect_reference
STUDY ?=
LAB ?=
DOCUMENTS ?=
FIGURES ?=
BENCH ?=
GPU_DAY ?=

.DEFAULT_GOAL := help
.PHONY: help study paper pdf figures test lint format lab data bench gpu-day soak test-versions horovod extrap docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

study: $(VENV)/.installed ## Run the laptop study: real training, figures, report (STUDY="--repeats 1": a third of it)
	$(BIN)/hpc study run laptop $(STUDY)

paper: $(VENV)/.installed-paper ## Build paper, proposal and slides into paper/build (DOCUMENTS=paper for some)
	$(BIN)/hpc paper $(DOCUMENTS)

pdf: paper ## Build the documents, and renew the copies in docs/pdf that visitors open
	cd paper/build && cp paper.pdf proposal.pdf slides.pdf summary.pdf bottlenecks.pdf resnet18.pdf tex/ieee/paper.tex ../../docs/pdf

figures: $(VENV)/.installed ## Draw all figures and tables of all sets and studies again, from their records (FIGURES="--results SET")
	$(BIN)/hpc chapter --all $(FIGURES)

test: $(VENV)/.installed-dev ## Check style, then run all tests but the long ones (TESTS=path for some)
	@$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -m "not soak" $(SHARED) $(TESTS)

lint: $(VENV)/.installed-dev ## ruff check and format, imports between rooms, notebooks without outputs, licences, secrets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/nbstripout --verify notebooks/*.ipynb
	@[ ! -e .git ] || { $(BIN)/reuse lint --quiet && git ls-files -z -- ':!results/reference' ':!*.pdf' ':!*.png' | xargs -0 -P 2 -n 400 $(BIN)/$(SECRETS); }

format: $(VENV)/.installed-dev ## Let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/nbstripout notebooks/*.ipynb

lab: $(VENV)/.installed ## Open the chapters in JupyterLab (LAB="--port 9999": its options)
	$(BIN)/python -m ipykernel install --prefix $(VENV) --name scaling-compendium --display-name "Scaling compendium"
	$(BIN)/jupyter lab --notebook-dir notebooks $(LAB)

data: $(VENV)/.installed ## Fetch CIFAR-10 and MNIST (HPC_DATA_MIRROR=folder takes them from there)
	$(BIN)/hpc data fetch cifar10 mnist

bench: $(VENV)/.installed-dev ## Measure side by side in five minutes (BENCH=--full: all); writes results/bench/*.csv
	$(BIN)/python -m benchmarks $(BENCH)

gpu-day: $(VENV)/.installed-dev ## Measure one GPU, in an order of worth (GPU_DAY=--rehearse on a CPU); docs/gpu-day.md
	PYTHON=$(abspath $(BIN))/python benchmarks/gpu_day/gpu-day.sh $(GPU_DAY)

soak: $(VENV)/.installed-dev ## The long fault tests
	$(BIN)/python -m pytest -m soak $(TESTS)

test-versions: $(VENV)/.installed-dev ## Try the versions of Python and torch in env/README.md (TESTS="-k 3.12"); some GB each
	$(BIN)/python -m pytest -m soak tests/env/test_versions.py $(TESTS)

horovod: .venv-horovod/bin/horovodrun ## Build Horovod (4 minutes, with a C++ compiler and CMake), which chapter 09 compares with

# An environment of its own beside this one's packages. Horovod 0.28.1 asks for C++14, torch's headers need C++17.
.venv-horovod/bin/horovodrun: $(VENV)/.installed
	$(BIN)/python -m venv .venv-horovod
	$(BIN)/python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' \
		>"$$(echo .venv-horovod/lib/python3*/site-packages)/torch.pth"
	printf '#!/bin/sh\nexec c++ "$$@" -std=c++17\n' >.venv-horovod/bin/c++17 && chmod +x .venv-horovod/bin/c++17
	.venv-horovod/bin/python -m pip --disable-pip-version-check install --quiet cffi cloudpickle packaging psutil pyyaml setuptools wheel
	CXX=$(CURDIR)/.venv-horovod/bin/c++17 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
		HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 .venv-horovod/bin/python -m pip --disable-pip-version-check install \
		--quiet --no-build-isolation --no-deps horovod==0.28.1

extrap: .venv-extrap/bin/extrap ## Install Extra-P, which chapter 03b compares its model with, beside ours

# An environment of its own, because it asks for NumPy 1; without its graphical program's libraries.
.venv-extrap/bin/extrap: env/extrap.txt
	$(PYTHON) -m venv .venv-extrap
	.venv-extrap/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --requirement env/extrap.txt
	@touch $@

docs: $(VENV)/.installed-docs ## Renew what is written from code and committed runs; build the site, docs/_build/html/index.html
	$(BIN)/python docs/renew.py
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs -d docs/_build/doctrees . docs/_build/html

clean: ## Remove the environment and caches; never results or data
	rm -rf $(VENV) .venv-horovod .venv-extrap .venv-versions build docs/_build *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' || \
		{ echo "make: $(PYTHON) is older than 3.11.4; say which to use: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python $(INPUTS)
	$(ANNOUNCE)
	$(INSTALL) --editable .
	$(COMPILE)
	@touch $@

$(VENV)/.installed-paper: $(VENV)/.installed
	$(INSTALL) --editable '.[paper]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(INSTALL) --editable '.[docs]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python $(INPUTS)
	$(ANNOUNCE)
	$(INSTALL) --editable '.[dev,docs,paper,profile,trees]'
	$(COMPILE)
	@touch $(VENV)/.installed $(VENV)/.installed-docs $(VENV)/.installed-paper $@
