#!/bin/sh
# Installs the programs of this checkout as a user does, from a proxy that serves its
# modules in the version of the next release: go install NAME@VERSION, without the
# workspace of go.work and without any replacement. Then it runs the demo of each.
set -eu
cd "$(dirname "$0")/.."
own=github.com/dlock-go/dlock
version=$(sed -n 's/^version=//p' scripts/tidy.sh)

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
