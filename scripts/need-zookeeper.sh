#!/bin/sh
# Makes sure that the tests can run a real ZooKeeper: Java, and its jars from
# ZOOKEEPER_HOME (an unpacked release) or from Debian's package zookeeper.
# Installs what is missing where that is possible, and says what to install
# where it is not. It says nothing when everything is there.
set -eu

debian_jars=/usr/share/java

have_java() {
	{ [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; } || command -v java >/dev/null 2>&1
}

have_zookeeper() {
	if [ -n "${ZOOKEEPER_HOME:-}" ]; then
		ls "$ZOOKEEPER_HOME"/lib/zookeeper-[0-9]*.jar >/dev/null 2>&1
	else
		[ -e "$debian_jars/zookeeper.jar" ]
	fi
}

. "$(dirname "$0")/install.sh"

if [ -n "${ZOOKEEPER_HOME:-}" ] && ! have_zookeeper; then
	echo "ZOOKEEPER_HOME is $ZOOKEEPER_HOME, but there is no lib/zookeeper-*.jar: unpack a release there, or unset it" >&2
	exit 1
fi
have_zookeeper || install_packages zookeeper
have_java || install_packages default-jre-headless

if ! have_java || ! have_zookeeper; then
	cat >&2 <<-'MESSAGE'
	The tests need a real ZooKeeper, which could not be installed here. Either
	  on Debian or Ubuntu, as root: apt-get install -y --no-install-recommends zookeeper default-jre-headless
	or, anywhere: install a Java runtime (11 or later), unpack a release of ZooKeeper
	  (https://zookeeper.apache.org/releases.html, 3.5 or later) and set ZOOKEEPER_HOME to its directory.
	MESSAGE
	exit 1
fi
