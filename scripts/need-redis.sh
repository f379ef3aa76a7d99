#!/bin/sh
# Makes sure that the tests can run Redis, its sentinel and redis-cli. Installs them
# where that is possible, and says what to install where it is not.
set -eu

have_redis() {
	command -v redis-server && command -v redis-sentinel && command -v redis-cli
} >/dev/null 2>&1

. "$(dirname "$0")/install.sh"

have_redis || install_servers "redis-server redis-sentinel" redis-server redis-sentinel redis-tools
have_redis || {
	cat >&2 <<-'MESSAGE'
	The tests need redis-server, redis-sentinel and redis-cli, which could not be installed here:
	  on Debian or Ubuntu, as root: apt-get install -y --no-install-recommends redis-server redis-sentinel redis-tools
	  elsewhere: install Redis 7 or later, and put its programs on the PATH
	MESSAGE
	exit 1
}
