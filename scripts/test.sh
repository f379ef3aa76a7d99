#!/bin/sh
# Runs all tests of all modules with the race detector and a real ZooKeeper.
# Some tests run the lock libraries of others beside this one, see need-peers.sh.
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

status=0
for module in $(sh scripts/modules.sh); do
	echo "# tests of $module"
	(enter "$module" && CGO_ENABLED=1 DLOCK_TEST_ZOOKEEPER=require go test -race -shuffle=on -p 1 -timeout 15m ${TESTFLAGS:-} ./...) || status=1
done
exit $status
