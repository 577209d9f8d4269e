# Every target runs in .venv, which scripts/venv.sh makes and keeps up to date (./hv uses the same).

PY := .venv/bin/python
# Module fixtures are made once. tests/conftest.py orders the files, the slowest first.
BY_FILE := --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help test coverage test-long test-agents test-cluster test-web lint check docs tutorials site lock man test-install bench bench-queue bench-start bench-sandbox bench-flat bench-dispatch bench-triage bench-learn bench-hive bench-mcp bench-fleet bench-modules bench-busy-host bench-workspaces bench-dashboard bench-scale clean dev bench-deps

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  \1	/p' Makefile | expand -t 16

test: ## Run all tests, PostgreSQL and a small Ray cluster included
	@sh scripts/venv.sh dev cluster
	@sh scripts/test.sh $(BY_FILE)
	@sh scripts/tested.sh --note

coverage: dev ## Run all tests and print what they miss
	@sh scripts/test.sh $(BY_FILE) --cov --cov-report=term

test-long: dev ## Run all tests, the ones that take minutes included
	$(PY) -m pytest --long

test-agents: dev ## Run the real agent CLIs (pinned, from npm) against a scripted model
	@sh scripts/agents.sh sh scripts/test.sh --dist worksteal --durations=20 tests/agents/real --agents -m agents

test-web: ## Run the tests of the dashboard in a real Chromium
	@sh scripts/web_tests.sh

test-cluster: ## Run three hosts in network namespaces under a real Ray: cut, pause, kill (root)
	@sh scripts/venv.sh dev cluster
	@sh scripts/test.sh -n 0 -s --durations=5 tests/cluster --cluster

test-install: ## Install the wheel with pip, pipx and uv into empty environments, run it, uninstall it
	@sh scripts/venv.sh dev release
	@sh scripts/test.sh -n 0 --durations=5 tests/install --install

lint: dev ## Check style, types and import rules
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports

check: lint ## Everything a change must pass: lint, and test unless that has passed on these files
	@sh scripts/tested.sh || $(MAKE) test

docs: dev ## Regenerate the generated parts of the documentation
	$(PY) scripts/cli_reference.py
	$(PY) scripts/config_reference.py
	$(PY) scripts/lifecycle_diagram.py
	$(PY) scripts/sandbox_table.py
	$(PY) scripts/mcp_reference.py
	$(PY) scripts/json_schema.py
	$(PY) scripts/man_page.py

lock: dev ## Update the pinned development tools in requirements-dev.lock
	$(PY) scripts/lock.py

man: dev ## Write the manual page docs/man/hv.1 from the parsers of the commands
	$(PY) scripts/man_page.py

tutorials: dev ## Run the commands of the tutorials and update the outputs in the pages
	$(PY) scripts/tutorials.py

site: .venv-site/ready.toml ## Build the documentation as a website in site/
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict --quiet
	@echo "open site/index.html, or with search: $(PY) -m http.server -d site --bind 127.0.0.1"

# In an environment of its own: nobody else needs what it installs.
.venv-site/ready.toml: pyproject.toml | dev
	$(PY) -m venv .venv-site
	.venv-site/bin/python -m pip --quiet --disable-pip-version-check install 'pip>=25.1'
	.venv-site/bin/python -m pip --quiet install --group site
	cp pyproject.toml $@

bench: bench-queue bench-start bench-flat bench-dispatch bench-triage bench-hive bench-mcp bench-modules ## Run all benchmarks

# -m: run as a file, bench/queue.py would stand in for the standard library's queue.
bench-queue: bench-deps ## Claim and complete, against other queues
	$(PY) -m bench.queue

bench-start: bench-deps ## Start-up time of the commands
	$(PY) -m bench.start

bench-sandbox: bench-deps ## What a sandbox costs per command
	$(PY) -m bench.sandbox

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

bench-gateway: dev ## Calls through the gateway, against direct ones, and its memory
	$(PY) -m bench.gateway

bench-fleet: bench-deps ## Ten real claude agents that make one instant call, against bare ones
	@sh scripts/agents.sh $(PY) -m bench.fleet

bench-busy-host: dev ## Workers of a batch while other programs use 62 % of the CPU
	$(PY) -m bench.busy_host

bench-dashboard: dev ## The dashboard over 100,000 tasks, and what it costs claims
	$(PY) -m bench.dashboard

bench-workspaces: dev ## Fifty workspaces, eight at a time, against git worktree add
	$(PY) -m bench.workspaces

bench-scale: bench-deps ## Many hosts on one PostgreSQL: costs, 1,000 simulated hosts, against Procrastinate
	$(PY) -m bench.scale

bench-modules: dev ## Modules that everyday commands load
	$(PY) -m bench.modules

clean: ## Remove .venv, caches and build output
	rm -rf .venv .venv-site .venv.lock .venv.log .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist site
	find src tests bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

dev:
	@sh scripts/venv.sh dev

bench-deps:
	@sh scripts/venv.sh bench
