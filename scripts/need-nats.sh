#!/bin/sh
# Makes sure that the tests can run a NATS server: builds a release of it into the
# user's cache directory, where natstest looks for it. No module of this repository
# requires the server, so that no user's build has it.
set -eu
version=v2.15.2

cache=${XDG_CACHE_HOME:-$HOME/.cache}/dlock
log=$(mktemp)
trap 'rm -f "$log"' EXIT
GOBIN=$cache go install "github.com/nats-io/nats-server/v2@$version" 2>"$log" || {
	cat "$log" >&2
	echo "The tests need nats-server, which could not be built here: install Go 1.26 or later, or put nats-server 2.12 or later on the PATH" >&2
	command -v nats-server >/dev/null 2>&1
}
