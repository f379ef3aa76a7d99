#!/bin/sh
# Makes sure that the tests can run PostgreSQL, and pgbouncer before it. Installs
# them where that is possible, and says what to install where it is not.
set -eu

# Debian keeps the server's programs in a directory of each version, and pgbouncer
# in a directory that is not on every user's PATH.
PATH=$PATH:/usr/sbin

have_program() { # have_program NAME
	command -v "$1" >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/"$1" >/dev/null 2>&1
}

have_postgres() {
	have_program postgres && have_program initdb && have_program psql && have_program pgbouncer
}

. "$(dirname "$0")/install.sh"

have_postgres || install_servers "postgresql pgbouncer" postgresql pgbouncer
have_postgres || {
	cat >&2 <<-'MESSAGE'
	The tests need PostgreSQL and pgbouncer, which could not be installed here:
	  on Debian or Ubuntu, as root: apt-get install -y --no-install-recommends postgresql pgbouncer
	  elsewhere: install PostgreSQL 13 or later and pgbouncer, and put their programs on the PATH
	MESSAGE
	exit 1
}
