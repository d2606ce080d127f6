# One door. `make run` and `make test` are all that a newcomer needs.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

help: ## Show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

run: ## Build and start the gateway with the embedded journal and the demo agent (PORT=…; CLUSTER=3: three over PostgreSQL)
	@scripts/run

test: ## Run every suite; installs what is missing
	@scripts/test

check: ## Format, lints (Rust, effects of the page), docs, licences, generated files, dependencies, line lengths, the map of requirements, what documents link to and quote
	@scripts/check

gen: ## Write the generated files: schemas, TypeScript types, OpenAPI, the references of errors, commands and checks
	cargo xtask gen

bench: ## Measure against named peers, as ratios, and draw the figures (LONG=1: thrice the rounds; PEERS=1: beside what users would pick instead); some ten minutes
	bench/python/run
	cargo run --release --manifest-path bench/Cargo.toml -- all
	if [ "$${PEERS:-}" ]; then bench/peers/run; fi
	bench/plot

fuzz: ## Fuzz the decoders, a minute each (FUZZ_SECONDS=…)
	@scripts/fuzz

soak: ## The long versions of the tests
	PROPTEST_CASES=20000 CAPSTAN_SEEDS=5000 CAPSTAN_CLUSTER_SEEDS=300 scripts/postgres cargo test --workspace --release -- --include-ignored
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/rustc-with-hooks scripts/postgres cargo test --package capstan-gateway --test it -- --ignored soak_every_planted
	CAPSTAN_EXAMPLES=200 scripts/literal tests/python/test_openapi.py
	CAPSTAN_SOAK=1 scripts/literal tests/python/test_a2a.py tests/python/test_openai_healing.py tests/python/test_openai_providers.py
	scripts/old-a2a
	CAPSTAN_SOAK=1 scripts/postgres npm --prefix web test --silent --workspace face-tests --workspace openai-tests --workspace ag-ui-tests --workspace capstan
	cd web && CAPSTAN_SOAK=1 CAPSTAN_BIN=$(CURDIR)/target/release/capstan npx vitest run --root e2e

release: ## The optimised binary, with the playground in it: target/dist/capstan
	@scripts/release

dist: ## Everything that one can install, built and tried: target/packages
	@scripts/dist

.PHONY: help run test check gen bench fuzz soak release dist
