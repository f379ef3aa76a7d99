#!/bin/sh
# Runs every Fuzz target of the repository for a short time each (FUZZTIME, 10s).
set -eu
cd "$(dirname "$0")/.."
. scripts/enter.sh

for module in $(sh scripts/modules.sh); do
	(
		enter "$module"
		for package in $(go list ./...); do
			for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
				echo "$package $target"
				go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-10s}" -fuzzminimizetime 20x "$package"
			done
		done
	)
done
