#!/bin/sh
# Usage: scripts/test.sh [core|histories]
#
# Runs all tests of every module, with the race detector and real servers:
# ZooKeeper, Redis, PostgreSQL, MariaDB and etcd. A server that cannot be installed is
# a failure. Some tests run the lock libraries of others beside this one, see
# need-peers.sh. With the argument "core" only the tests of the root module run. With the argument "histories" only the
# tests run that record histories, and the judge of these. TESTFLAGS holds more flags for go
# test, which override those below.
#
# Most tests wait for a server or a timeout. So two or three packages run at a time,
# and at most four tests of each: more would fail on a machine that has other work, as
# sessions starve. For the same reason, the two packages that need ensembles have a
# time of their own.
#
# The tests keep their files in memory if /dev/shm has 4 GiB of room. Most stores wait
# for the disk with each change, and beside other work a disk let them wait for 3 s.
# The tests kill servers, but they cut no power, so they do without a disk.
set -u
cd "$(dirname "$0")/.."
. scripts/enter.sh

sh scripts/need-zookeeper.sh || exit 1
sh scripts/need-gcc.sh || exit 1
export CGO_ENABLED=1 DLOCK_TEST_ZOOKEEPER=require

two='-p 2 -parallel 4'
three='-p 3 -parallel 4'
alone='-p 1'
ensemble="$two -timeout 30m" # elections take long on a busy machine
status=0

# make_files sets files to a new directory for the files of the tests, in memory if
# there is room and programs can run there. Its path is short, for the sake of sockets.
make_files() {
	room=$(df -Pk /dev/shm 2>/dev/null | awk 'END { print $4 + 0 }')
	if [ "$room" -ge $((4 << 20)) ] && files=$(mktemp -d /dev/shm/dl.XXXXXX 2>/dev/null); then
		printf '#!/bin/sh\n' >"$files/run" && chmod +x "$files/run"
		"$files/run" 2>/dev/null || { rm -r "$files" && files=; }
	fi
	[ -n "$files" ] || files=$(mktemp -d) || return
	chmod 755 "$files" # servers may run as another user
}

files=
trap 'rm -rf "$files"' EXIT
trap 'exit 1' HUP INT TERM
make_files || exit 1
export GOTMPDIR="${TMPDIR:-/tmp}" # Go builds the tests on the disk
export TMPDIR="$files"
export DLOCK_HISTORIES="${DLOCK_HISTORIES:-$files/histories}"
mkdir -p "$DLOCK_HISTORIES" || exit 1

# tests DIRECTORY FLAGS PACKAGE... tests packages of the module, or of the
# modules, in a directory.
tests() {
	dir=$1 flags=$2
	shift 2
	echo "# tests of $dir, with $flags"
	began=$(date +%s)
	(enter "$dir" && go test -race -shuffle=on -timeout 15m $flags ${TESTFLAGS:-} "$@") || status=1
	echo "# tests of $dir: $(($(date +%s) - began)) s"
}

all_began=$(date +%s)
contrib=$(sh scripts/modules.sh | sort -r | sed -n 's|^\./contrib/\(.*\)|./\1/...|p')
if [ "${1-}" = histories ]; then
	sh scripts/need-stores.sh || exit 1
	tests . "$alone" ./internal/histories
	tests ./contrib "$two -run Histories" $contrib
	tests ./internal/longtest "$alone" ./histories
elif [ "${1-}" = core ]; then
	tests . "$three" $(GOWORK=off go list ./... | sort -r)
else
	sh scripts/need-peers.sh || exit 1
	sh scripts/need-stores.sh || exit 1
	export DLOCK_TEST_REDIS=require DLOCK_TEST_POSTGRES=require DLOCK_TEST_MYSQL=require
	export DLOCK_TEST_ETCD=require
	tests . "$three" $(GOWORK=off go list ./... | sort -r) # so that long packages come first
	tests ./contrib "$two" $contrib # the workspace has all modules under contrib, so one command tests them
	tests ./bench "$alone" ./...
	tests ./internal/longtest "$two" ./endtoend ./handmade ./survey
	tests ./internal/longtest "$ensemble" ./ensemble ./soak
	tests ./internal/longtest "$alone" ./histories # judges what the tests above have recorded
fi
echo "# all tests: $(($(date +%s) - all_began)) s"
exit $status
