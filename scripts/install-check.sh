#!/bin/sh
# Installs the programs of this checkout as a user does, from a proxy that serves its
# modules in the version of the next release: go install NAME@VERSION, without the
# workspace of go.work and without any replacement. Then it runs the demo of each.
# It also shows what the go.mod of a program of a user holds that uses one package of contrib.
set -eu
cd "$(dirname "$0")/.."
own=github.com/dlock-go/dlock
version=$(sed -n "s|^	$own \(v.*\)|\1|p" contrib/cmd/go.mod)

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
sh scripts/proxy.sh "$temp/proxy"

# The cache of the machine serves the other modules first, and never gets the
# modules of this checkout, which have no final hashes.
cache=$(go env GOMODCACHE)/cache/download
export GOPROXY="file://$temp/proxy,file://$cache,$(go env GOPROXY)"
export GONOSUMDB=$own,$own/* GOWORK=off GOBIN="$temp/bin" GOMODCACHE="$temp/mod"
export GOFLAGS="-modcacherw -trimpath"
cd "$temp"
for program in cmd/dlock contrib/cmd/dlock; do
	rm -rf "$GOBIN"
	go install "$own/$program@$version"
	"$GOBIN/dlock" demo -workers 2 >demo.log || { cat demo.log; exit 1; }
	echo "installed $program@$version, and its demo is ok"
done

export GOSUMDB=off GOFLAGS="-modcacherw -mod=mod" # a new program has no go.sum yet
for package in etcddriver natsdriver redisdriver sqldriver/postgres sqldriver/mysql sqldriver/sqlite promdlock oteldlock gocrondlock; do
	rm -rf "$temp/app" && mkdir "$temp/app" && cd "$temp/app"
	cat >main.go <<-EOF
		package main

		import (
			"$own"
			_ "$own/contrib/$package"
		)

		func main() { println(len(dlock.Drivers())) }
	EOF
	{
		go mod init example.com/app
		go get "$own@$version" "$own/contrib/${package%%/*}@$version"
		go run . # not go mod tidy, which asks for the tests of all modules
	} >run.log 2>&1 || { cat run.log; exit 1; }
	echo "a program with contrib/$package: $(grep -c '^	' go.mod) lines in go.mod, $(go list -m all | wc -l) modules"
	[ -z "${SHOW:-}" ] || { cat go.mod && go list -m all; }
	if grep -E 'longtest|nats-server|redislock|redsync|porcupine' go.mod; then exit 1; fi
done
