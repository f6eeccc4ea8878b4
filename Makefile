PYTHON ?= python3
BIN := .venv/bin
INPUTS ?= 20000

.PHONY: demo browser test test-all test-full durations lint format bench-bounds bench-games bench-dpsgd bench-training bench-lora bench-correlated bench-curves bench-shares bench-files bench-report bench-release bench-finished bench figures pictures gallery wild notebooks validity fuzz docs wheel clean

demo: .venv/installed  ## two real audits, printed and reported
	$(BIN)/canaria demo

test: .venv/installed-test  ## the fast tests, and one training with every framework; five minutes on two cores
	$(BIN)/python -m pytest -n auto -m "not slow and not full"

test-all: .venv/installed-test-all browser  ## what `make test` leaves out, but for the full-size runs
	$(BIN)/python -m pytest -n auto -m "slow and not full"

browser:  ## `make test-all` opens reports in a real one
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  { apt-get update -q && apt-get install -y -q chromium; } || \
	  { echo "make test-all opens reports in a browser: install chromium"; exit 1; }

test-full: .venv/installed-test-all browser  ## the full-size statistical runs
	$(BIN)/python -m pytest -n auto -m full

durations: .venv/installed-test-all browser  ## measures every test but the full-size ones, into tests/durations.tsv
	rm -f tests/durations.tsv
	$(BIN)/python -m pytest -n auto -m "not full" --write-durations

lint: .venv/installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-bounds: .venv/installed
	$(BIN)/python benchmarks/bounds.py

bench-games: .venv/installed
	$(BIN)/python benchmarks/games.py

bench-dpsgd: .venv/installed-test-all
	$(BIN)/python benchmarks/dpsgd.py

bench-training: .venv/installed-test-all  ## what an attached audit costs; on a GPU machine: --cuda
	$(BIN)/python benchmarks/training.py --write

bench-lora:  ## LoRA on a language model with 100,000 canaries; on a GPU machine with opacus, transformers and peft
	$(BIN)/python benchmarks/lora.py --write

bench-correlated:  ## correlated noise with 100,000 canaries; on a GPU machine with jax-privacy
	$(BIN)/python benchmarks/correlated.py --write

bench-curves: .venv/installed-test-all  ## Gaussian claims against JAX Privacy's f-DP methods, on the same scores
	$(BIN)/python benchmarks/curves.py --write

bench-shares: .venv/installed-test-all  ## what Gaussian claims would show with other shares of the level for their looks
	$(BIN)/python benchmarks/shares.py --write

bench-files: .venv/installed-test-all  ## seconds for score files of 10,000,000 rows
	$(BIN)/python benchmarks/files.py --write

bench-report: .venv/installed-test-all  ## processor time of a report on three results
	$(BIN)/python benchmarks/report.py --write

bench-release: .venv/installed-test-all  ## milliseconds that a check of a release adds to each run
	$(BIN)/python benchmarks/release.py

bench-finished:  ## what the finished model shows of canaries with weights of their own; on a GPU machine with opacus, transformers and peft
	$(BIN)/python benchmarks/finished.py --write

bench: .venv/installed-test-all  ## ours and every peer: how fast, how tight, how valid, into benchmarks/RESULTS.md; an hour
	cd benchmarks && ../$(BIN)/python -m side_by_side

figures: .venv/installed-test-all  ## the paper's figures, and ours, into canaria-figures
	$(BIN)/canaria reproduce --resume
	$(BIN)/python benchmarks/figures_page.py canaria-figures

validity: .venv/installed-test-all  ## every auditor against every case, in full, into canaria-validity and the docs
	$(BIN)/canaria validate --audits 600 --claims 40000 --resume
	$(BIN)/python benchmarks/validity_page.py canaria-validity

pictures: .venv/installed-test-all  ## those of the documentation, from real runs
	$(BIN)/python benchmarks/pictures.py

gallery: .venv/installed-test-all  ## what docs/gallery.md shows, by running it
	$(BIN)/python benchmarks/gallery.py

wild:  ## real faults of released packages, each in an environment of its own, into docs/wild.md; ten minutes
	$(PYTHON) benchmarks/wild.py

notebooks: .venv/installed-test-all  ## run, and stored with their outputs
	$(BIN)/python benchmarks/notebooks.py

fuzz: .venv/installed-fuzz  ## readers, command line and numerics under attack; in full: make fuzz INPUTS=1000000
	$(BIN)/python -m fuzz --inputs $(INPUTS)

docs: .venv/installed-test-all  ## the documentation, into site; no network is used
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

wheel: .venv/installed  ## sdist and wheel; the wheel is installed into an empty environment, measured and run
	rm -rf dist
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt build hatchling
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python benchmarks/wheel.py dist/*.whl

clean:
	rm -rf .venv

.venv/created:
	$(PYTHON) -m venv .venv
	touch $@

.venv/installed: .venv/created pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[report]"
	touch $@

.venv/installed-test: .venv/created pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test]"
	touch $@ .venv/installed

.venv/installed-lint: .venv/created pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[lint]"
	touch $@ .venv/installed .venv/installed-test

# mostlyai-engine comes alone: for tables it needs no triton (286 MB) and no torchvision, which is for CUDA only.
.venv/installed-test-all: .venv/created pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test-all]"
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps mostlyai-engine
	touch $@ .venv/installed .venv/installed-test

.venv/installed-fuzz: .venv/created pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[fuzz]"
	touch $@ .venv/installed
