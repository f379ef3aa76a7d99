#!/bin/sh
# Usage: scripts/tidy.sh [-diff] [MODULE...]
#
# Runs go mod tidy for these modules, or for every module: as in
# "sh scripts/tidy.sh contrib/redisdriver". With -diff it changes nothing, prints
# what would change, and fails if anything would.
#
# The modules under contrib require the other modules of this repository in
# versions that need not be published yet, and their go.mod files replace nothing.
# So a copy of go.mod is made that replaces those modules by the directories of
# this checkout, and that copy is tidied. Replaced modules have no hashes, so
# go.sum holds none that change with each commit.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$(pwd)
modules=$(sh scripts/modules.sh)
go_version=$(grep '^go ' go.mod)
own=github.com/dlock-go/dlock

diff=
[ "${1:-}" != -diff ] || { diff=-diff && shift; }

# The go command writes no other file here: -modfile does not work in a workspace.
export GOWORK=off

copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT

# replace_own replaces each module of this repository in the go.mod of the copy.
replace_own() {
	for other in $modules; do
		go mod edit -replace="$own${other#.}=$root/$other" "$copy/go.mod" || return 1
	done
}

# keep_own takes the replacements out again, and copies the result to the module.
keep_own() {
	for other in $modules; do
		go mod edit -dropreplace="$own${other#.}" "$copy/go.mod" || return 1
	done
	cp "$copy/go.mod" go.mod && if [ -s "$copy/go.sum" ]; then cp "$copy/go.sum" go.sum; else rm -f go.sum; fi
}

tidy_contrib() {
	rm -f "$copy/go.mod" "$copy/go.sum"
	cp go.mod "$copy/go.mod" || return 1
	[ ! -e go.sum ] || cp go.sum "$copy/go.sum" || return 1
	replace_own || return 1
	go mod tidy $diff -modfile="$copy/go.mod" || return 1
	[ -n "$diff" ] || keep_own
}

# same_go fails if a dependency has raised the Go version that the module needs.
same_go() {
	[ "$(grep '^go ' go.mod)" = "$go_version" ] || {
		echo "the root module says $go_version, but $module/go.mod says $(grep '^go ' go.mod):" \
			"require older versions of the dependencies that raised it (go get NAME@VERSION)" >&2
		return 1
	}
}

status=0
for module in ${*:-$modules}; do
	cd "$root/$module" || exit 1
	case $module in
	contrib/* | ./contrib/*) tidy_contrib ;;
	*) go mod tidy $diff ;;
	esac && same_go || {
		echo "go mod tidy $diff failed in $module" >&2
		status=1
	}
done
exit $status
