#!/bin/sh
# Checks format, vet, staticcheck and go.mod of every module of the repository.
# Goes on after a failure, so that one run shows everything.
set -u
cd "$(dirname "$0")/.."
. scripts/enter.sh

# Runs with Go 1.25 and 1.26.
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.7.0

status=0
check() {
	"$@" || {
		echo "lint: $(pwd): failed: $*" >&2
		status=1
	}
}

unformatted() {
	files=$(gofmt -l .) || return 1
	[ -z "$files" ] || {
		echo "gofmt these:" >&2
		echo "$files" >&2
		return 1
	}
}

root=$(pwd)
check unformatted
for module in $(sh scripts/modules.sh); do
	enter "$module"
	check go vet ./...
	check go run $staticcheck ./...
	cd "$root" || exit 1
done
check sh scripts/tidy.sh -diff
exit $status
