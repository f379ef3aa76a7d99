# Sourced by the need-*.sh scripts.

# install_packages installs packages of Debian or Ubuntu where this user may do
# so without being asked for a password. It always succeeds: the caller looks
# whether what it wanted is there now.
install_packages() {
	command -v apt-get >/dev/null 2>&1 || return 0
	if [ "$(id -u)" -eq 0 ]; then
		as_root=
	elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
		as_root="sudo -n"
	else
		return 0
	fi
	echo "installing $*" >&2
	# Its output is of interest only where it went wrong.
	log=$(mktemp)
	if ! {
		$as_root apt-get update &&
			$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
	} </dev/null >"$log" 2>&1; then
		cat "$log" >&2
	fi
	rm -f "$log"
}
