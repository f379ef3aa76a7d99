#!/bin/sh
# Prints the directory of every module of the repository, the root first.
cd "$(dirname "$0")/.." || exit 1
find . -name .git -prune -o -name testdata -prune -o -name go.mod -print | sed 's|/go.mod$||' | sort
