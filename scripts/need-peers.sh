#!/bin/sh
# Makes sure that there are the lock libraries of others: Curator (Debian's
# libcurator-recipes-java or the jars in CURATOR_JARS, and a JDK that compiles
# our program) and kazoo (python3-kazoo). Installs what is missing where that is
# possible. It fails if something is missing then, and says what to install.
set -eu

have_jdk() {
	java=java
	[ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
	"$java" --list-modules 2>/dev/null | grep -q '^jdk\.compiler'
}

have_curator() {
	ls "${CURATOR_JARS:-/usr/share/java}"/curator-recipes*.jar >/dev/null 2>&1
}

# Debian's Python is asked, whatever other one is on the PATH.
have_kazoo() {
	/usr/bin/python3 -c 'import kazoo' 2>/dev/null || python3 -c 'import kazoo' 2>/dev/null
}

. "$(dirname "$0")/install.sh"

missing=
want() { # want package check
	"$2" || missing="$missing $1"
}
want default-jdk-headless have_jdk
want libcurator-recipes-java have_curator
want python3-kazoo have_kazoo

# One at a time where all at once does not work: one that cannot be had is not to cost the others.
if [ -n "$missing" ]; then
	# shellcheck disable=SC2086
	install_packages $missing
	have_jdk && have_curator && have_kazoo ||
		for package in $missing; do install_packages "$package"; done
fi

status=0
lack() { # lack check message
	"$1" && return
	echo "$2" >&2
	status=1
}
lack have_jdk "no Java compiler: install default-jdk-headless"
lack have_curator "no Curator: install libcurator-recipes-java, or set CURATOR_JARS to a directory that holds its jars"
lack have_kazoo "no kazoo: install python3-kazoo"
exit $status
