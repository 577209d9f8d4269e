# Every target runs in .venv, which scripts/venv.sh makes and keeps up to date (./hv uses the same).

PY := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help test coverage test-long test-agents lint check docs bench bench-queue bench-start bench-flat bench-dispatch bench-triage bench-learn bench-hive bench-mcp clean dev bench-deps

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  \1	/p' Makefile | expand -t 16

test: dev ## Run all tests, PostgreSQL included
	@sh scripts/test.sh
	@sh scripts/tested.sh --note

coverage: dev ## Run all tests and print what they miss
	@sh scripts/test.sh --cov --cov-report=term

test-long: dev ## Run all tests, the ones that take minutes included
	$(PY) -m pytest --long

test-agents: dev ## Run the real agent CLIs (pinned, from npm) against a scripted model
	@sh scripts/agents.sh $(PY) -m pytest -n 4 --dist worksteal --durations=20 tests/agents/real --agents -m agents

lint: dev ## Check style, types and import rules
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports

check: lint ## Everything a change must pass: lint, and test unless that has passed on these files
	@sh scripts/tested.sh || $(MAKE) test

docs: dev ## Write the generated parts of the documentation anew
	$(PY) scripts/cli_reference.py
	$(PY) scripts/lifecycle_diagram.py
	$(PY) scripts/mcp_reference.py

bench: bench-queue bench-start bench-flat bench-dispatch bench-triage bench-hive bench-mcp ## Run all benchmarks

# -m: run as a file, bench/queue.py would stand in for the standard library's queue.
bench-queue: bench-deps ## Claim and complete, against other queues
	$(PY) -m bench.queue

bench-start: bench-deps ## Start-up time of the commands
	$(PY) -m bench.start

bench-flat: bench-deps ## Claim cost from a thousand to a million tasks
	$(PY) -m bench.flat

bench-dispatch: bench-deps ## Short commands by the thousand, against xargs, parallel, make, HyperQueue
	$(PY) -m bench.dispatch

bench-triage: bench-deps ## Task files by the thousand, against a script with lock folders
	$(PY) -m bench.triage

bench-learn: bench-deps ## The strategy adaptive, against every fixed number of workers
	$(PY) -m bench.learn

bench-hive: bench-deps ## Recall among 100,000 findings
	$(PY) -m bench.hive

bench-mcp: bench-deps ## Ten MCP clients at once, against one server each
	$(PY) -m bench.mcp

clean: ## Remove .venv, caches and build output
	rm -rf .venv .venv.lock .venv.log .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

dev:
	@sh scripts/venv.sh dev

bench-deps:
	@sh scripts/venv.sh bench
