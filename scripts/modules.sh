#!/bin/sh
# Prints the directory of every module of the repository that holds Go files, the
# root first.
cd "$(dirname "$0")/.." || exit 1
find . -name .git -prune -o -name testdata -prune -o -name go.mod -print | sed 's|/go.mod$||' | sort |
	while read -r module; do
		[ -z "$(find "$module" -name '*.go' -print -quit)" ] || echo "$module"
	done
