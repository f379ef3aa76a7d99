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

# The version of this repository's modules that the modules under contrib require:
# the one that is released next, see CONTRIBUTING.md.
version=v0.1.0

diff=
[ "${1:-}" != -diff ] || { diff=-diff && shift; }

# The go command writes no other file here: -modfile does not work in a workspace.
export GOWORK=off

copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT

# each_own calls a command for each module of this repository, with the module's
# path, the version that the modules under contrib require, and its directory.
each_own() {
	for other in $modules; do
		"$1" "$own${other#.}" "$version" "$root/$other" || return 1
	done
}
require_version() {
	grep -q "$1 v" "$copy/go.mod" || return 0
	go mod edit -require="$1@$2" "$copy/go.mod"
}
replace_own() { go mod edit -replace="$1@$2=$3" "$copy/go.mod"; }
drop_own() { go mod edit -dropreplace="$1@$2" "$copy/go.mod"; }

# tidy_copy leaves the tidy go.mod and go.sum of the current directory in the copy.
tidy_copy() {
	rm -f "$copy/go.mod" "$copy/go.sum"
	cp go.mod "$copy/go.mod" || return 1
	[ ! -e go.sum ] || cp go.sum "$copy/go.sum" || return 1
	each_own require_version && each_own replace_own &&
		go mod tidy -modfile="$copy/go.mod" && each_own drop_own || return 1
	touch go.sum "$copy/go.sum"
}

tidy_contrib() {
	tidy_copy || return 1
	if [ -n "$diff" ]; then
		diff -u go.mod "$copy/go.mod" && diff -u go.sum "$copy/go.sum"
	else
		cp "$copy/go.mod" go.mod && cp "$copy/go.sum" go.sum
	fi
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
