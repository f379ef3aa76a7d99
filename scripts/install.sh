# Sourced by the need-*.sh scripts.

# as_root runs a command as root. It fails if this user may not do so without being
# asked for a password.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

# install_packages installs packages of Debian or Ubuntu where this user may do
# so without being asked for a password. It always succeeds: the caller looks
# whether what it wanted is there now.
install_packages() {
	command -v apt-get >/dev/null 2>&1 || return 0
	as_root true 2>/dev/null || return 0
	echo "installing $*" >&2
	# Its output is of interest only where it went wrong.
	log=$(mktemp)
	if ! {
		as_root apt-get update &&
			as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
	} </dev/null >"$log" 2>&1; then
		cat "$log" >&2
	fi
	rm -f "$log"
}

# install_servers installs packages like install_packages, but the services that
# come with them neither start now nor when the machine starts: the tests start
# servers of their own. The first argument lists the units of these services.
install_servers() {
	units=$1
	shift
	command -v apt-get >/dev/null 2>&1 || return 0
	as_root true 2>/dev/null || return 0
	(
		# Debian's packages ask this program whether they may start a service: 101 is no.
		policy=/usr/sbin/policy-rc.d
		kept=
		[ ! -e "$policy" ] || kept=$policy.before-dlock
		restore() {
			if [ -n "$kept" ]; then as_root mv "$kept" "$policy"; else as_root rm -f "$policy"; fi
		}
		[ -z "$kept" ] || as_root mv "$policy" "$kept"
		trap restore EXIT
		trap 'exit 1' HUP INT TERM
		printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
		as_root chmod 755 "$policy"

		install_packages "$@"
		# Where systemd is not installed, nothing would start them later either.
		command -v systemctl >/dev/null 2>&1 || exit 0
		# shellcheck disable=SC2086
		as_root systemctl --quiet disable $units >/dev/null 2>&1 || true
	)
}
