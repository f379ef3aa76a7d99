#!/bin/sh
# Makes sure that the tests can run MariaDB. Installs it where that is possible, and
# says what to install where it is not.
set -eu

# Debian keeps the server in a directory that is not on every user's PATH.
PATH=$PATH:/usr/sbin

have_mariadb() {
	for program in mariadbd mariadb-install-db mariadb; do
		command -v "$program" >/dev/null 2>&1 || return 1
	done
}

. "$(dirname "$0")/install.sh"

have_mariadb || install_servers mariadb mariadb-server mariadb-client
have_mariadb || {
	cat >&2 <<-'MESSAGE'
	The tests need MariaDB, which could not be installed here:
	  on Debian or Ubuntu, as root: apt-get install -y --no-install-recommends mariadb-server
	  elsewhere: install MariaDB 10.6 or later, and put its programs on the PATH
	MESSAGE
	exit 1
}
