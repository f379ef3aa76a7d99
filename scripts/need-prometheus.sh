#!/bin/sh
# Makes sure that the tests can run promtool, which tests the alarms of promdlock.
# Installs it where that is possible, and says what to install where it is not.
set -eu

have_promtool() { command -v promtool >/dev/null 2>&1; }

. "$(dirname "$0")/install.sh"

have_promtool || install_servers prometheus prometheus
have_promtool || {
	cat >&2 <<-'MESSAGE'
	The tests need promtool, which could not be installed here:
	  on Debian or Ubuntu, as root: apt-get install -y --no-install-recommends prometheus
	  elsewhere: install Prometheus 2.42 or later, and put promtool on the PATH
	MESSAGE
	exit 1
}
