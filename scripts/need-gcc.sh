#!/bin/sh
# Makes sure that there is a C compiler, which the race detector needs.
# Installs one where that is possible, and says what to install where it is not.
set -eu

have_compiler() {
	command -v "$(go env CC)" >/dev/null 2>&1
}

. "$(dirname "$0")/install.sh"

have_compiler || install_packages gcc libc6-dev
if ! have_compiler; then
	echo "the race detector needs a C compiler: install gcc (on Debian or Ubuntu, as root: apt-get install -y gcc libc6-dev)" >&2
	exit 1
fi
