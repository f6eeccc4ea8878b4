PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-full lint format bench-bounds bench-games bench-dpsgd bench-training figures clean

demo: .venv/installed  ## two real audits, printed
	$(BIN)/canaria demo

test: .venv/installed-test  ## everything but the full-size runs, on all cores
	$(BIN)/python -m pytest -n auto -m "not full"

test-full: .venv/installed-test  ## the full-size statistical runs
	$(BIN)/python -m pytest -n auto -m full

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-bounds: .venv/installed
	$(BIN)/python benchmarks/bounds.py

bench-games: .venv/installed
	$(BIN)/python benchmarks/games.py

bench-dpsgd: .venv/installed-test
	$(BIN)/python benchmarks/dpsgd.py

bench-training: .venv/installed-test  ## what an attached audit costs; on a GPU machine: --cuda
	$(BIN)/python benchmarks/training.py --write

figures: .venv/installed-test  ## the paper's figures, and ours, into canaria-figures
	$(BIN)/canaria reproduce --resume
	$(BIN)/python benchmarks/figures_page.py canaria-figures

clean:
	rm -rf .venv

.venv/created:
	$(PYTHON) -m venv .venv
	touch $@

.venv/installed: .venv/created pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

.venv/installed-test: .venv/created pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test]"
	touch $@ .venv/installed
