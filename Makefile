# One door. `make run` and `make test` are all that a newcomer needs.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

help: ## Show what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# PORT=… chooses another port; CLUSTER=3 starts three gateways over PostgreSQL.
run: ## Build and start the gateway with the embedded journal and the demo agent
	@scripts/run

test: ## Run every suite; installs what is missing
	@scripts/test

check: ## Format, lints, docs, licences, generated files, requirements, links and figures
	@scripts/check

gen: ## Write the generated files: schemas, TypeScript types, OpenAPI, references in docs/
	cargo xtask gen

# LONG=1: thrice the rounds; PEERS=1: beside what users would pick instead.
bench: ## Measure against named peers, as ratios, and draw the figures; some ten minutes
	bench/python/run
	cargo run --release --manifest-path bench/Cargo.toml -- all
	if [ "$${PEERS:-}" ]; then bench/peers/run; fi
	bench/plot

fuzz: ## Fuzz the decoders, a minute each (FUZZ_SECONDS=…)
	@scripts/fuzz

docs: ## The documentation as a site with search: target/book; checks its links
	@scripts/docs

soak: ## The long versions of the tests: hours
	@scripts/soak

release: ## The optimised binary, with the playground in it: target/dist/capstan
	@scripts/release

dist: ## Everything that one can install, built and tried: target/packages
	@scripts/dist

.PHONY: help run test check gen bench fuzz docs soak release dist
