#!/bin/sh
# Makes sure that the tests can run a NATS server: builds the release that
# internal/natsserver requires into the user's cache directory, where natstest
# looks for it.
set -eu
cd "$(dirname "$0")/../internal/natsserver"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/dlock
log=$(mktemp)
trap 'rm -f "$log"' EXIT
GOWORK=off go build -o "$cache/nats-server" github.com/nats-io/nats-server/v2 2>"$log" || {
	cat "$log" >&2
	echo "The tests need nats-server, which could not be built here: install Go 1.26 or later, or put nats-server 2.12 or later on the PATH" >&2
	command -v nats-server >/dev/null 2>&1
}
