# make help lists the targets.

TESTFLAGS ?=
BENCHTIME ?= 1s
BENCHFLAGS ?=
FUZZTIME ?= 10s
SOAK ?= 30m
SEED ?= 1

.PHONY: help histories demo-all install-check test test-long test-core lint bench bench-go fuzz soak faults need-zookeeper need-stores need-peers need-bench need-gcc

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 18

test: ## every rule and every driver on its real server, with the race detector; TESTFLAGS adds flags
	@TESTFLAGS='$(TESTFLAGS)' sh scripts/test.sh

test-long: ## what make test leaves out: ensembles, soaks, histories, hand-made locks, long seeds
	@TESTFLAGS='$(TESTFLAGS)' sh scripts/test.sh long

test-core: ## the tests of the root module; they need ZooKeeper only
	@TESTFLAGS='$(TESTFLAGS)' sh scripts/test.sh core

histories: ## record histories of every store, and judge whether they are linearizable
	@TESTFLAGS='$(TESTFLAGS)' sh scripts/test.sh histories

lint: ## gofmt, vet, staticcheck, go mod tidy
	@sh scripts/lint.sh

bench: need-bench ## this library beside other locks, tables into docs/use/benchmarks.md; BENCHFLAGS adds flags (-help lists them)
	cd bench && GOWORK=off go run . $(BENCHFLAGS)

bench-go: need-zookeeper ## the benchmarks of the packages, once each; BENCHTIME sets for how long
	GOWORK=off DLOCK_TEST_ZOOKEEPER=require go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...

fuzz: ## every fuzz target for FUZZTIME (10s)
	@FUZZTIME=$(FUZZTIME) sh scripts/fuzz.sh

soak: need-zookeeper need-gcc ## faults on three ZooKeeper servers for SOAK (30m), drawn from SEED (1), and what came of it
	GOWORK=off CGO_ENABLED=1 DLOCK_TEST_ZOOKEEPER=require go test -C internal/longtest -race -v -count=1 -timeout 0 -run NothingIsLost ./soak -soak $(SOAK) -seed $(SEED)

faults: need-stores ## put each fault of internal/plant into the code; fails if one is not seen
	DLOCK_TEST_REDIS=require DLOCK_TEST_POSTGRES=require DLOCK_TEST_MYSQL=require DLOCK_TEST_ETCD=require DLOCK_TEST_NATS=require \
		go test -count=1 -v -timeout 0 -parallel 4 -run TestFaults ./internal/plant -put

demo-all: need-zookeeper need-stores ## the demo with several processes on every store, each on a server that starts for it
	cd contrib/cmd && DLOCK_TEST_ZOOKEEPER=require DLOCK_TEST_REDIS=require DLOCK_TEST_POSTGRES=require DLOCK_TEST_MYSQL=require DLOCK_TEST_ETCD=require DLOCK_TEST_NATS=require go test -count=1 -v -run OnEveryStore ./dlock

install-check: ## install the programs as a user does, from a proxy that serves this checkout
	@sh scripts/install-check.sh

need-zookeeper: ## install ZooKeeper and Java for the tests, or say what to install
	@sh scripts/need-zookeeper.sh

need-stores: ## install Redis, PostgreSQL, MariaDB, etcd, NATS and promtool for the tests, or say what to install
	@sh scripts/need-stores.sh

need-peers: ## install the lock libraries that tests try beside this one, or say what to install
	@sh scripts/need-peers.sh

need-bench: ## install the locks that are measured beside this library, or say what to install
	@sh scripts/need-bench.sh

need-gcc: ## install a C compiler for the race detector, or say what to install
	@sh scripts/need-gcc.sh
