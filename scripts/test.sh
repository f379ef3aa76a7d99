#!/bin/sh
# Usage: scripts/test.sh [short|long|histories|core]
#
# Runs tests with the race detector and real servers: ZooKeeper, Redis, PostgreSQL,
# MariaDB, etcd and NATS. A server that cannot be installed is a failure. TESTFLAGS holds
# more flags for go test, which override those below.
#
#   short      every module with -short, and the request counts of internal/longtest
#   long       what short leaves out: the tests that ask testing.Short, newer servers,
#              internal/longtest, and the tests of the ZooKeeper servers for tests
#   histories  the tests that record histories, and the judge of these
#   core       the root module with -short; needs no server but ZooKeeper
#
# Most tests wait for a server or a timeout. So up to four packages run side by side,
# and at most four tests of each: more would fail on a machine that has other work, as
# sessions starve. For the same reason, compilers and linkers are nice (and collect
# little garbage, to be faster), and the two packages that need ensembles have a time of
# their own.
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

# Without this, each test binary with -race, and each process that it starts from itself,
# waits for a second before it exits. leakcheck sees what would go on in that second.
export GORACE="atexit_sleep_ms=0 ${GORACE-}"

# No race is looked for inside SQLite itself, translated C that -race makes ten times
# slower, nor in the model of generations, which has one goroutine. scripts/lint.sh
# vets the code. Without symbols, the tests are linked in two thirds of the time.
checks='-race -gcflags=modernc.org/...=-race=false -ldflags=-s -vet=off -shuffle=on'
checks="$checks -gcflags=github.com/dlock-go/dlock/internal/history/generations=-race=false"
two='-p 2 -parallel 4'
four='-p 4 -parallel 4'
alone='-p 1'
ensemble="$alone -parallel 4 -timeout 30m" # elections take long on a busy machine
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
	(enter "$dir" && go test $checks '-toolexec=env GOGC=400 nice' -timeout 25m $flags ${TESTFLAGS:-} "$@") || status=1
	echo "# tests of $dir: $(($(date +%s) - began)) s"
}

# need_all makes sure that there are servers of all stores, and requires them.
need_all() {
	sh scripts/need-stores.sh || exit 1
	export DLOCK_TEST_REDIS=require DLOCK_TEST_POSTGRES=require DLOCK_TEST_MYSQL=require
	export DLOCK_TEST_ETCD=require DLOCK_TEST_NATS=require DLOCK_TEST_PROMETHEUS=require
}

# long_files prints the files with tests that ask testing.Short, in the modules below
# a directory: "." stands for the root module.
long_files() {
	cd "$1" && grep -rl --include='*_test.go' 'testing\.Short()' . | case $1 in
	.) grep -Ev '^\./(contrib|bench|internal/longtest|internal/zktest)/' ;;
	*) cat ;;
	esac
}
long_packages() { (long_files "$1" | xargs -n 1 dirname | sort -u); }
long_tests() {
	(long_files "$1" | (cd "$1" && xargs awk '/^func Test/ { name = $2; sub(/\(.*/, "", name) }
		/testing\.Short\(\)/ { print name }') | sort -u | paste -sd '|' | sed 's/.*/^(&)$/')
}

# counts matches the tests of endtoend that count requests.
counts='Requests$|WritesNothing|AllocatesLittle'

# core lists the packages of the root module that make test tests, the long ones first.
core() { GOWORK=off go list ./zkdriver ./cmd/... ./dlocktest ./driver/session/cas ./internal/... ./... | grep -v '/internal/zktest$'; }

all_began=$(date +%s)
contrib=$(sh scripts/modules.sh | sort -r | sed -n 's|^\./contrib/\(.*\)|./\1/...|p')
if [ "${1-}" = histories ]; then
	need_all
	tests . "$alone" ./internal/history
	tests ./contrib "$two -run Histories" $contrib
	tests ./internal/longtest "$alone -run Histories" ./ensemble
	tests ./internal/longtest "$alone" ./histories
elif [ "${1-}" = core ]; then
	tests . "$four -short" $(core)
elif [ "${1-short}" = short ]; then
	need_all
	# Not side by side: on two cores that takes as long, and sessions starve.
	tests . "$four -short" $(core)
	tests ./bench "$four -short" ./...
	# The workspace has all modules under contrib. The longest are first.
	tests ./contrib "$four -short" ./sqldriver/postgres ./sqldriver/mysql ./etcddriver ./redisdriver ./natsdriver ./sqldriver/sqlite ./cmd/dlock $contrib
	tests ./internal/longtest "$alone -run $counts" ./endtoend
elif [ "$1" != long ]; then
	echo "usage: scripts/test.sh [short|long|histories|core]" >&2
	exit 2
else
	sh scripts/need-peers.sh || exit 1
	need_all
	tests . "$two -run $(long_tests .)" $(long_packages .)
	tests . "$alone" ./internal/history # for its records
	tests . "$alone -race=false -run TestNoSeed" ./internal/history -seeds=20000
	tests . "$two" ./internal/zktest
	tests ./contrib "$four -run $(long_tests contrib)" ./natsdriver $(long_packages contrib) # the longest first
	newer=$files/newer
	sh scripts/newer-servers.sh "$newer" || exit 1
	(
		export PATH="$newer:$PATH" DLOCK_TEST_POSTGRES_BIN="$newer/bin"
		tests ./contrib "$two -short -run Conformance" ./etcddriver ./sqldriver/postgres
		exit $status
	) || status=1
	tests ./bench "$alone -run $(long_tests bench)" $(long_packages bench)
	tests . "$alone -run TestFaults/sqlite" ./internal/plant -put # the store that takes least
	tests ./internal/longtest "$two -skip $counts" ./endtoend ./handmade ./survey
	tests ./internal/longtest "$ensemble" ./ensemble ./soak
	tests ./internal/longtest "$alone" ./histories # judges what the tests above have recorded
fi
echo "# all tests: $(($(date +%s) - all_began)) s"
exit $status
