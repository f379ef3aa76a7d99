#!/bin/sh
# Makes sure that the benchmark finds ZooKeeper, and as many of the peers as can
# be had: Curator (libcurator-recipes-java, and a JDK that compiles our program),
# kazoo (python3-kazoo) and etcd (etcd-server). Installs what is missing where
# that is possible. Without ZooKeeper there is nothing to measure, which is an error; a
# peer that is missing is left out of the run, and the report says so.
#
# On a machine with systemd, Debian's etcd-server also starts a service of its own,
# which the benchmark neither uses nor needs: systemctl disable --now etcd
set -eu

sh "$(dirname "$0")/need-zookeeper.sh"

have_jdk() {
	java=java
	[ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
	"$java" --list-modules 2>/dev/null | grep -q '^jdk\.compiler'
}

have_curator() { [ -e /usr/share/java/curator-recipes.jar ]; }

# Debian's Python is asked, whatever other one is on the PATH.
have_kazoo() {
	/usr/bin/python3 -c 'import kazoo' 2>/dev/null || python3 -c 'import kazoo' 2>/dev/null
}

have_etcd() { command -v etcd >/dev/null 2>&1; }

. "$(dirname "$0")/install.sh"

missing=
want() { # want package check
	"$2" || missing="$missing $1"
}
want default-jdk-headless have_jdk
want libcurator-recipes-java have_curator
want python3-kazoo have_kazoo
want etcd-server have_etcd

# One at a time where all at once does not work: one that cannot be had is not to cost the others.
if [ -n "$missing" ]; then
	# shellcheck disable=SC2086
	install_packages $missing
	for check in have_jdk have_curator have_kazoo have_etcd; do
		"$check" || {
			for package in $missing; do install_packages "$package"; done
			break
		}
	done
fi

have_jdk || echo "benchmark: no JDK, so Curator is left out: install default-jdk-headless" >&2
have_curator || echo "benchmark: no Curator: install libcurator-recipes-java" >&2
have_kazoo || echo "benchmark: no kazoo: install python3-kazoo" >&2
have_etcd || echo "benchmark: no etcd: install etcd-server" >&2
