#!/bin/sh
# Usage: scripts/tidy.sh [-diff]
#
# Runs go mod tidy for every module. With -diff it changes nothing, prints what
# would change, and fails if anything would.
#
# contrib/cmd replaces nothing, because go install refuses a module that does. Its
# copy of go.mod with replacements is tidied in its place. Replaced modules have no
# hashes, so no go.sum changes with each commit.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$(pwd)
go_version=$(grep '^go ' go.mod)
own=github.com/dlock-go/dlock
export GOWORK=off # -modfile does not work in a workspace

copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT

tidy_cmd() { # tidy_cmd [-diff]
	cp go.mod go.sum "$copy" &&
		for other in "" /contrib/etcddriver /contrib/natsdriver /contrib/redisdriver /contrib/sqldriver; do
			go mod edit -replace="$own$other=$root$other" "$copy/go.mod" || return 1
		done &&
		go mod tidy -modfile="$copy/go.mod" "$@" || return 1
	[ -n "$*" ] || { go mod edit $(go mod edit -json "$copy/go.mod" |
		sed -n 's|.*"Path": "\('"$own"'[^"]*\)".*|-dropreplace=\1|p' | sort -u) "$copy/go.mod" && cp "$copy/go.mod" "$copy/go.sum" .; }
}

status=0
for module in $(sh scripts/modules.sh); do
	cd "$root/$module" || exit 1
	case $module in
	*/cmd) tidy_cmd "$@" ;;
	*) go mod tidy "$@" ;;
	esac && [ "$(grep '^go ' go.mod)" = "$go_version" ] || {
		echo "$module/go.mod is not tidy, or a dependency raises its Go version above $go_version" >&2
		status=1
	}
done
exit $status
