#!/bin/sh
# Makes sure that the tests can mount a directory a second time. Installs bindfs where
# that is possible, and says what to install where it is not. Without /dev/fuse, as in
# most containers, the kernel refuses such mounts, and the test is skipped.
set -eu

have_bindfs() {
	command -v bindfs && command -v fusermount
} >/dev/null 2>&1

. "$(dirname "$0")/install.sh"

[ -e /dev/fuse ] || exit 0
have_bindfs || install_packages bindfs
have_bindfs || {
	echo "The tests of SQLite need bindfs, which could not be installed here (on Debian or Ubuntu, as root: apt-get install -y bindfs)" >&2
	exit 1
}
