#!/bin/sh
# Usage: scripts/test.sh [MODULE...]
#
# Runs all tests of these modules, or of every module, with the race detector and
# real servers: ZooKeeper for the root module ("."), Redis, PostgreSQL and etcd
# besides for the others. A server that cannot be installed is a failure. Some
# tests run the lock libraries of others beside this one, see need-peers.sh.
# TESTFLAGS holds more flags for go test.
#
# One package runs at a time: several of them start servers, clients and faults
# of their own, and on a small machine they would starve each other's sessions.
set -u
cd "$(dirname "$0")/.."
. scripts/enter.sh

sh scripts/need-zookeeper.sh || exit 1
sh scripts/need-peers.sh || exit 1
sh scripts/need-gcc.sh || exit 1
export CGO_ENABLED=1 DLOCK_TEST_ZOOKEEPER=require

if [ "$*" != . ]; then
	sh scripts/need-stores.sh || exit 1
	export DLOCK_TEST_REDIS=require DLOCK_TEST_POSTGRES=require DLOCK_TEST_ETCD=require
fi

status=0
all_began=$(date +%s)
for module in ${*:-$(sh scripts/modules.sh)}; do
	echo "# tests of $module"
	began=$(date +%s)
	(enter "$module" && go test -race -shuffle=on -p 1 -timeout 15m ${TESTFLAGS:-} ./...) || status=1
	echo "# tests of $module: $(($(date +%s) - began)) s"
done
echo "# all tests: $(($(date +%s) - all_began)) s"
exit $status
