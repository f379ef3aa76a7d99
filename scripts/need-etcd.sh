#!/bin/sh
# Makes sure that the tests can run etcd and etcdctl. Installs them where that is
# possible, and says what to install where it is not.
set -eu

have_etcd() {
	command -v etcd && command -v etcdctl
} >/dev/null 2>&1

. "$(dirname "$0")/install.sh"

have_etcd || install_servers etcd etcd-server etcd-client
have_etcd || {
	cat >&2 <<-'MESSAGE'
	The tests need etcd and etcdctl, which could not be installed here:
	  on Debian or Ubuntu, as root: apt-get install -y --no-install-recommends etcd-server etcd-client
	  elsewhere: install etcd 3.4 or later, and put its programs on the PATH
	MESSAGE
	exit 1
}
